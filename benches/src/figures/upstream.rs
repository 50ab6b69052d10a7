//! An HTTPS server that is reached through a proxy: small answers, and one large one.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::error::BenchError;

pub(super) const SMALL: &str = "/small";
pub(super) const BULK: &str = "/bulk";

const MIB: usize = 1024 * 1024;
const BULK_MIB: usize = 256;

/// Serves in this thread's namespace. Its thread ends with the process.
pub(super) fn serve(port: u16, certificate: &Path, key: &Path) -> Result<(), BenchError> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let listener = TcpListener::bind(address).map_err(BenchError::io("listen on", address))?;
    listener.set_nonblocking(true).map_err(BenchError::io("prepare", address))?;
    let tls = configuration(certificate, key)?;
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be had").block_on(accept(listener, TlsAcceptor::from(tls)));
    });
    Ok(())
}

fn configuration(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, BenchError> {
    let wrong = |error: &dyn std::fmt::Display| BenchError::WrongAnswer { what: error.to_string() };
    let chain = vec![CertificateDer::from_pem_file(certificate).map_err(|error| wrong(&error))?];
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(&error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| wrong(&error))?;
    Ok(Arc::new(config))
}

async fn accept(listener: TcpListener, tls: TlsAcceptor) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener stays one");
    while let Ok((stream, _)) = listener.accept().await {
        let tls = tls.clone();
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            if let Ok(stream) = tls.accept(stream).await {
                // A client that disconnects ends its connection.
                let serving = hyper::server::conn::http1::Builder::new();
                let _ = serving.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            }
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    if request.uri().path() != BULK {
        return Ok(Response::new(Full::new(Bytes::from_static(b"ok")).boxed()));
    }
    let piece = Bytes::from(vec![b'x'; MIB / 4]);
    let pieces = (0..BULK_MIB * 4).map(move |_| Ok(Frame::data(piece.clone())));
    let mut response = Response::new(StreamBody::new(stream::iter(pieces)).boxed());
    response.headers_mut().insert("content-length", (BULK_MIB * MIB).into());
    Ok(response)
}
