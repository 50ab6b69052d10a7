//! Opens WebSockets with the same connections, key and error bodies as other requests.

use http::Method;
use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::client::{Call, innermost};
use crate::url::Path;
use crate::{Client, ClientError};

/// Largest accepted message: the daemon sends output in much smaller messages.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Maximum input that the socket has not sent yet; beyond it, the sender waits.
const WRITE_BUFFER_BYTES_MAX: usize = 4 << 20;

pub(crate) type Socket = WebSocketStream<TokioIo<Upgraded>>;

impl Client {
    pub(crate) async fn websocket(&self, path: Path) -> Result<Socket, ClientError> {
        let shown = path.shown();
        let broken = |source| ClientError::Broken { method: Method::GET, path: shown.clone(), source };
        let key = generate_key();
        let mut call = Call::new(Method::GET, path);
        call.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        call.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        call.headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        call.headers
            .insert(SEC_WEBSOCKET_KEY, HeaderValue::from_str(&key).map_err(|error| broken(error.into()))?);
        let response = self.send(call).await?;
        let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
        if accepted != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
            return Err(broken("the daemon did not accept the WebSocket".into()));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(|error| broken(innermost(&error)))?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX))
            .max_write_buffer_size(WRITE_BUFFER_BYTES_MAX);
        Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config)).await)
    }
}
