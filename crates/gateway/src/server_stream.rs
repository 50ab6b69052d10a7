//! A connection to a server inside a sandbox: plain, or TLS to the ports that E2B's clients have declared as HTTPS.
//!
//! The certificate of the server is not checked. It cannot identify the server: every process of the sandbox can listen on the
//! port and create a certificate, and the connection does not leave this host. TLS only serves programs that speak nothing else.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use burrow_engine::{Engine, PortStream};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::upstream::{PortKey, UpstreamError};

/// Time limit for a server that accepts the connection but does not answer the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The version of HTTP that a TLS handshake offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http1,
    Http2,
}

/// Opens connections.
#[derive(Clone)]
pub(super) struct Dialer {
    engine: Engine,
    tls_http1: TlsConnector,
    tls_http2: TlsConnector,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl Dialer {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine, tls_http1: connector(b"http/1.1"), tls_http2: connector(b"h2") }
    }

    pub(super) async fn dial(
        &self,
        place: &PortKey,
        version: HttpVersion,
    ) -> Result<ServerStream, UpstreamError> {
        let stream = self.engine.connect_port(&place.tenant, &place.sandbox, place.port).await;
        let stream = stream.map_err(|error| UpstreamError::Connect(Box::new(error)))?;
        if !place.tls {
            return Ok(ServerStream::Plain(stream));
        }
        let connector = match version {
            HttpVersion::Http1 => &self.tls_http1,
            HttpVersion::Http2 => &self.tls_http2,
        };
        let name = ServerName::try_from("localhost").expect("a valid name");
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, connector.connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(ServerStream::Tls(Box::new(stream))),
            Ok(Err(error)) => Err(UpstreamError::Broken(error.into())),
            Err(_) => Err(UpstreamError::Broken("it does not answer the TLS handshake".into())),
        }
    }
}

fn connector(alpn: &[u8]) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider supports them")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// Accepts every certificate, see the module.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(super) enum ServerStream {
    Plain(PortStream),
    Tls(Box<TlsStream<PortStream>>),
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(ctx, buffer),
            Self::Tls(stream) => match Pin::new(stream).poll_read(ctx, buffer) {
                // Many servers close the connection without a TLS alert: the end of the connection, as without TLS.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Poll::Ready(Ok(()))
                }
                polled @ (Poll::Ready(_) | Poll::Pending) => polled,
            },
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(ctx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(ctx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(ctx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(ctx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(ctx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(ctx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(ctx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(ctx),
        }
    }
}
