//! Who gets in, and what those who do not are told.
use super::{common::*, site::*};
use crate::backend::*;
use nexar_core::transport::{Connection, ConnectionError, SendStream, Transport};
use nexar_quic::{Backend, Config, Identity, IdentityError, Secret};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use std::{
    env,
    io::{BufRead, BufReader, Write},
    net::UdpSocket,
    process::{Command, Stdio},
    sync::Arc,
};

/// Dials `b` from `a`, which must fail, and gives the reason. `b` must stay in service.
async fn refused(a: TestTransport, b: TestTransport) -> String {
    let reason = refused_reason(a.connect(b.local_addr(), None).await.unwrap_err());
    close(a, b).await;
    reason
}

#[tokio::test]
async fn another_secret_is_refused() {
    let reason = refused(bind(identity(1)), bind(identity(2))).await;
    assert!(
        reason.contains("secrets") && reason.contains("differ"),
        "{reason}"
    );
}

#[tokio::test]
async fn human_chosen_secrets_work_and_are_compared() {
    let of = |text| Identity::from_secret(&Secret::new(text).unwrap(), "test").unwrap();
    let (a, b) = (
        bind(of("correct horse battery")),
        bind(of("correct horse battery")),
    );
    connect(&a, &b).await;
    let c = bind(of("correct horse batterz"));
    let reason = refused_reason(c.connect(a.local_addr(), None).await.unwrap_err());
    assert!(reason.contains("secrets"), "{reason}");
    c.close(0, "").await;
    close(a, b).await;
}

#[tokio::test]
async fn no_secret_and_a_secret_do_not_mix() {
    let insecure = Identity::insecure_loopback("test").unwrap();
    let reason = refused(bind(insecure), bind(identity(2))).await;
    assert!(reason.contains("secrets"), "{reason}");
}

#[tokio::test]
async fn pem_identities_of_one_site_accept_one_another() {
    let site = Site::new();
    let a = bind(site.identity("spiffe://site/a", |_| {}));
    let b = bind(site.identity("spiffe://site/b", |_| {}));
    let (dialled, accepted) = connect(&a, &b).await;
    assert_eq!(
        (peer(&dialled), peer(&accepted)),
        ("spiffe://site/b", "spiffe://site/a")
    );
    close(a, b).await;
}

#[test]
fn pem_identities_come_from_files() {
    let site = Site::new();
    let (chain, key) = site.leaf("spiffe://site/a", |_| {});
    let dir = env::temp_dir().join(format!("nexar-quic-pem-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let chain = write("chain.pem", &chain);
    let key = write("key.pem", &key);
    let ca = write("ca.pem", &site.certificate);
    let identity = Identity::from_pem_files(&chain, &key, &ca).unwrap();
    assert_eq!(identity.peer_id().as_str(), "spiffe://site/a");

    let missing = Identity::from_pem_files(dir.join("nothing"), &key, &ca).unwrap_err();
    assert!(matches!(missing, IdentityError::File { .. }));
    let swapped = Identity::from_pem_files(&key, &chain, &ca).unwrap_err();
    assert!(matches!(swapped, IdentityError::Pem { .. }), "{swapped}");
    let (_, other_key) = site.leaf("spiffe://site/c", |_| {});
    let other = write("other.pem", &other_key);
    let mixed = Identity::from_pem_files(&chain, &other, &ca).unwrap_err();
    assert!(matches!(mixed, IdentityError::Tls(_)), "{mixed}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn certificates_of_another_site_or_self_signed_are_refused() {
    let (here, there) = (Site::new(), Site::new());
    let a = bind(there.identity("spiffe://site/a", |_| {}));
    let b = bind(here.identity("spiffe://site/b", |_| {}));
    assert!(refused(a, b).await.contains("CA files"));

    // Self-signed, but trusting the right authority: only the server can object.
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI("spiffe://site/a".try_into().unwrap())];
    let own = params.self_signed(&key).unwrap().pem();
    let ca = here.certificate.as_bytes();
    let own = Identity::from_pem(own.as_bytes(), key.serialize_pem().as_bytes(), ca).unwrap();
    let b = bind(here.identity("spiffe://site/b", |_| {}));
    let reason = refused(bind(own), b).await;
    assert!(
        reason.contains("this side's certificate, says the peer, is not signed"),
        "{reason}"
    );
}

#[tokio::test]
async fn an_expired_certificate_is_refused_on_either_side() {
    let site = Site::new();
    let a = bind(site.identity("spiffe://site/a", expired));
    let b = bind(site.identity("spiffe://site/b", |_| {}));
    let reason = refused(a, b).await;
    assert!(
        reason.starts_with("this side's") && reason.contains("expired"),
        "{reason}"
    );

    let a = bind(site.identity("spiffe://site/a", |_| {}));
    let b = bind(site.identity("spiffe://site/b", expired));
    let reason = refused(a, b).await;
    assert!(
        reason.starts_with("the peer's") && reason.contains("expired"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_certificate_from_the_future_is_refused() {
    let site = Site::new();
    let a = bind(site.identity("spiffe://site/a", not_yet_valid));
    let b = bind(site.identity("spiffe://site/b", |_| {}));
    let reason = refused(a, b).await;
    assert!(
        reason.contains("not valid yet") && reason.contains("clocks"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_certificate_for_servers_only_cannot_dial() {
    let site = Site::new();
    let server_only = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    let a = bind(site.identity("spiffe://site/a", server_only));
    let b = bind(site.identity("spiffe://site/b", |_| {}));
    let reason = refused(a, b).await;
    assert!(reason.contains("both client and server"), "{reason}");
}

/// Accepts any server.
#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// A bare quinn client without a certificate.
fn stranger(alpn: &[u8]) -> quinn::Endpoint {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible))
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.to_vec()];
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let mut endpoint = quinn::Endpoint::client(any_port()).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
    endpoint
}

#[tokio::test]
async fn a_client_without_a_certificate_or_with_another_protocol_is_refused() {
    let (a, b) = two();
    let client = stranger(b"nexar/1");
    let connecting = client.connect(b.local_addr(), "nexar").unwrap();
    // The client may believe in its success until the server has looked.
    let error = match connecting.await {
        Ok(connection) => connection.closed().await,
        Err(error) => error,
    };
    assert!(error.to_string().contains("certificate"), "{error}");

    // s2n-quic says nothing to a client whose first packet it refuses.
    if BACKEND == Backend::Quinn {
        let client = stranger(b"h3");
        let error = client
            .connect(b.local_addr(), "nexar")
            .unwrap()
            .await
            .unwrap_err();
        assert!(error.to_string().contains("error 120"), "{error}");
    }

    // Neither reached the application, and the endpoint is still there.
    let (_, accepted) = connect(&a, &b).await;
    assert_eq!(accepted.connection.peer_identity(), a.identity());
    close(a, b).await;
}

#[tokio::test]
async fn garbage_is_ignored() {
    let (a, b) = two();
    let socket = UdpSocket::bind(any_port()).unwrap();
    let mut garbage = 0x2545_f491_4f6c_dd1d_u64;
    for len in [0, 1, 2, 7, 20, 21, 100, 1199, 1200, 1472, 9000, 65_507] {
        for first in [0x00, 0x40, 0x7f, 0x80, 0xc0, 0xc3, 0xd0, 0xe0, 0xf0, 0xff] {
            let mut datagram: Vec<u8> = (0..len)
                .map(|_| {
                    garbage ^= garbage << 13;
                    garbage ^= garbage >> 7;
                    garbage ^= garbage << 17;
                    garbage as u8
                })
                .collect();
            if let Some(byte) = datagram.first_mut() {
                *byte = first;
            }
            if len > 6 && first >= 0x80 {
                // Version 1 and a plausible connection ID, to get a step further.
                datagram[1..6].copy_from_slice(&[0, 0, 0, 1, 8]);
            }
            socket.send_to(&datagram, b.local_addr()).unwrap();
        }
    }
    let (dialled, accepted) = connect(&a, &b).await;
    assert_eq!(peer(&dialled), b.identity().as_str());
    assert_eq!(peer(&accepted), a.identity().as_str());
    close(a, b).await;
}

#[tokio::test]
async fn stalled_handshakes_hold_nobody_up() {
    let (a, b) = two();
    let mut stalled = Vec::new();
    for _ in 0..20 {
        // First packets of handshakes that nobody continues: the socket is not read any more.
        let client = stranger(b"nexar/1");
        let connecting = client.connect(b.local_addr(), "nexar").unwrap();
        stalled.push((client, connecting));
    }
    connect(&a, &b).await;
    close(a, b).await;
}

/// More clients at a time than handshakes may be pending, half of them before anybody accepts.
#[tokio::test]
async fn a_crowd_of_clients_gets_in() {
    const CLIENTS: usize = 400;
    let (a, b) = two();
    let a = Arc::new(a);
    let address = b.local_addr();
    let mut dials = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let a = a.clone();
        dials.spawn(async move { a.connect(address, None).await.unwrap().connection });
    }
    let mut connections = Vec::new();
    for _ in 0..CLIENTS / 2 {
        connections.push(dials.join_next().await.unwrap().unwrap());
    }
    let mut accepted = Vec::new();
    for _ in 0..CLIENTS {
        accepted.push(b.accept().await.unwrap());
    }
    connections.extend(dials.join_all().await);
    assert_eq!(connections.len(), CLIENTS);
    assert!(
        accepted
            .iter()
            .all(|new| new.connection.peer_identity() == a.identity())
    );
    tokio::join!(a.close(0, ""), b.close(0, ""));
}

const CHILD: &str = "NEXAR_QUIC_TEST_CHILD";

/// Not a test of its own: the other process of the next one.
#[tokio::test]
async fn child_process() {
    let Ok(address) = env::var(CHILD) else { return };
    let a = bind(Identity::from_secret(&Secret::new("a shared passphrase").unwrap(), "c").unwrap());
    let mut out = std::io::stdout();
    let reply = match a.connect(address.parse().unwrap(), None).await {
        Ok(new) => {
            let reply = format!("CHILD {} sees {}", a.identity(), peer(&new));
            new.connection.closed().await;
            reply
        }
        Err(error) => format!("CHILD failed: {error}"),
    };
    writeln!(out, "\n{reply}").unwrap();
    a.close(0, "").await;
}

#[tokio::test]
async fn the_same_secret_in_another_process_is_the_same_cluster() {
    let secret = Secret::new("a shared passphrase").unwrap();
    let b = bind(Identity::from_secret(&secret, "parent").unwrap());
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "suite::handshake::child_process", "--nocapture"])
        .env(CHILD, b.local_addr().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let accepted = b.accept().await.unwrap();
    let child_name = peer(&accepted).to_owned();
    assert!(child_name.starts_with("c/"));
    accepted.connection.close(0, "seen");
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let lines: Vec<_> = lines.map(Result::unwrap).collect();
    let reply = lines.iter().find(|line| line.starts_with("CHILD")).unwrap();
    assert_eq!(*reply, format!("CHILD {child_name} sees {}", b.identity()));
    assert!(child.wait().unwrap().success());
    b.close(0, "").await;
}

const SERVER: &str = "NEXAR_QUIC_TEST_SERVER";

/// Not a test of its own: the process that the next one kills.
#[tokio::test]
async fn server_process() {
    let Ok(address) = env::var(SERVER) else {
        return;
    };
    let address = address.parse().unwrap();
    let b = TestTransport::bind(Config::new(identity(9), address)).unwrap();
    println!("\nSERVING");
    let _connection = b.accept().await.unwrap();
    std::future::pending().await
}

#[tokio::test]
async fn a_restarted_process_tells_that_the_old_connection_is_gone() {
    let a = bind(identity(9));
    let free = bind(identity(9));
    let address = free.local_addr();
    free.close(0, "").await;
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "suite::handshake::server_process", "--nocapture"])
        .env(SERVER, address.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "SERVING"));
    let old = a.connect(address, None).await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();

    let b = TestTransport::bind(Config::new(identity(9), address)).unwrap();
    // Something on its way to the new process; the news may have arrived already.
    if let Ok(mut send) = old.connection.open_uni().await {
        let _ = send.write_all(pattern(1, 0, 10_000)).await;
    }
    let error = old.connection.closed().await;
    assert!(matches!(error, ConnectionError::Reset), "{error:?}");
    connect(&a, &b).await;
    close(a, b).await;
}
