//! Certificates that pods trust, and certificates of their own: made by an API server and
//! its signers, read in containers, and followed. A real containerd, real sockets.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use api_client::{Call, Patch, path};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair,
    PublicKeyData, SigningKey,
};
use serde_json::{Value, json};
use testkit::{ApiOptions, Cluster, PodManifest};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, Pem, X509Certificate};
use x509_parser::public_key::PublicKey;
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, Tag, TagClass, construct_der};

const CERTIFICATES: &str = "apis/certificates.k8s.io/v1beta1";

fn cluster(gates: &[&str]) -> Result<Cluster> {
    let gates: Value = gates.iter().map(|gate| ((*gate).to_owned(), json!(true))).collect();
    Cluster::start_with(ApiOptions::default(), json!({"featureGates": gates}))
}

fn put_bundle(cluster: &Cluster, name: &str, signer: &str, parts: &[&str]) -> Result<()> {
    let bundle = json!({"metadata": {"name": name, "labels": {"example.com/use": "live"}},
        "spec": {"signerName": signer, "trustBundle": parts.concat()}});
    let place = path(CERTIFICATES, "", &["clustertrustbundles"]);
    cluster.api.ask(Call::post(&place, bundle)).map(drop)
}

/// A new authority's certificate, and what signs for it.
fn authority() -> Result<(String, Issuer<'static, KeyPair>)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key)?.pem();
    Ok((pem.replace("\r\n", "\n"), Issuer::new(params, key)))
}

fn events(cluster: &Cluster) -> Result<String> {
    let events = cluster.api.ask(Call::get(&path("api/v1", "default", &["events"])))?;
    Ok(events["items"].to_string().replace("\\\"", "\""))
}

fn wait_event(cluster: &Cluster, words: &str) -> Result<()> {
    cluster.node.eventually(&format!("an event that says {words:?}"), || {
        let all = events(cluster)?;
        ensure!(all.contains(words), "{all}");
        Ok(())
    })
}

/// A pod that stays, with one projected source of these.
fn pod(name: &str, source: Value) -> PodManifest {
    PodManifest::script(name, "trap 'exit 0' TERM; while true; do sleep 0.1; done")
        .with("volumeMounts", json!([{"name": "v", "mountPath": "/v"}]))
        .spec("volumes", json!([{"name": "v", "projected": {"sources": [source]}}]))
}

/// A file of the example's pod.
fn read_trust(cluster: &Cluster, file: &str) -> Result<String> {
    cluster.node.run_in("trust-bundle", "show", &format!("cat /trust/{file}"))
}

/// The certificates of a file, whose order means nothing.
fn certificates(text: &str) -> BTreeSet<String> {
    text.split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned).collect()
}

/// Changes the example's bundle, and waits until its pod has it.
fn set_roots(cluster: &Cluster, pem: &str) -> Result<()> {
    let place = path(CERTIFICATES, "", &["clustertrustbundles", "example.com:roots:2026"]);
    let change = json!({"spec": {"trustBundle": pem}});
    cluster.api.ask(Call::patch(&place, Patch::Merge, change))?;
    cluster.node.eventually("the file to change", || {
        ensure!(read_trust(cluster, "one.pem")? == pem, "it has not");
        Ok(())
    })
}

#[test]
fn what_pods_trust_are_files_that_follow_their_bundles() -> Result<()> {
    let mut cluster = cluster(&["ClusterTrustBundle", "ClusterTrustBundleProjection"])?;
    let uid = cluster.apply_example("trust-bundle")?;
    cluster.wait_ready("trust-bundle")?;
    cluster.node.wait_word("trust-bundle", "show", "all.pem more.pem one.pem")?;
    let first = read_trust(&cluster, "one.pem")?;
    assert!(first.starts_with("-----BEGIN CERTIFICATE-----\n"), "{first}");
    assert_eq!(read_trust(&cluster, "all.pem")?, first);
    assert_eq!(read_trust(&cluster, "more.pem")?, "");

    // Of two bundles of one signer each certificate is there once; what was missing comes.
    let ((a, _), (b, _)) = (authority()?, authority()?);
    put_bundle(&cluster, "example.com:roots:next", "example.com/roots", &[&first, &a])?;
    put_bundle(&cluster, "more", "", &["junk\n", &b, &b])?;
    cluster.node.eventually("the files to hold what is new", || {
        let all = read_trust(&cluster, "all.pem")?;
        ensure!(all.contains(&first) && all.contains(&a), "{all}");
        ensure!(all.matches("BEGIN CERTIFICATE").count() == 2, "{all}");
        ensure!(read_trust(&cluster, "more.pem")? == b, "more.pem has not changed");
        Ok(())
    })?;
    set_roots(&cluster, &a)?;

    // Another life of the agent leaves the files as they are, and follows the bundles.
    let before = certificates(&read_trust(&cluster, "all.pem")?);
    cluster.node.survive_kill()?;
    assert_eq!(read_trust(&cluster, "one.pem")?, a);
    assert_eq!(certificates(&read_trust(&cluster, "all.pem")?), before);
    assert_eq!(read_trust(&cluster, "more.pem")?, b);
    set_roots(&cluster, &b)?;

    // Who cannot do without waits, and says for what.
    let source = json!({"clusterTrustBundle": {"name": "late", "path": "late.pem"}});
    let waits = cluster.create_pod(&pod("waits", source))?;
    wait_event(&cluster, "clustertrustbundle.certificates.k8s.io \"late\" not found")?;
    put_bundle(&cluster, "late", "", &[&b])?;
    cluster.wait_ready("waits")?;
    assert_eq!(cluster.node.run_in("waits", "main", "cat /v/late.pem")?, b);
    for (name, uid) in [("trust-bundle", uid), ("waits", waits)] {
        cluster.delete_pod(name, None)?;
        cluster.wait_no_trace(name, &uid)?;
    }
    Ok(())
}

/// The request of a pod that nobody has answered, once there is one.
fn wait_request(cluster: &Cluster, pod: &str) -> Result<Value> {
    let place = path(CERTIFICATES, "default", &["podcertificaterequests"]);
    cluster.node.eventually(&format!("a request for {pod}"), || {
        let list = cluster.api.ask(Call::get(&place))?;
        let mut all = list["items"].as_array().into_iter().flatten();
        let is_open =
            |one: &&Value| one["spec"]["podName"] == pod && one["status"]["conditions"].is_null();
        all.find(is_open).cloned().with_context(|| format!("{list:#}"))
    })
}

fn answer(cluster: &Cluster, request: &Value, condition: &str, more: &Value) -> Result<()> {
    let condition = json!({"type": condition, "status": "True", "reason": "Tested",
        "message": "so it is", "lastTransitionTime": Timestamp::now().to_string()});
    let mut status = more.clone();
    status["conditions"] = json!([condition]);
    let name = request["metadata"]["name"].as_str().context("a request has a name")?;
    let place = path(CERTIFICATES, "default", &["podcertificaterequests", name, "status"]);
    cluster.api.ask(Call::patch(&place, Patch::Merge, json!({"status": status}))).map(drop)
}

/// Signs a request; the certificate is to be refreshed after so many minutes. Returns
/// the chain and the public key that it is for.
fn issue(
    cluster: &Cluster,
    request: &Value,
    issuer: &Issuer<'static, KeyPair>,
    refresh: i64,
) -> Result<(String, Vec<u8>)> {
    let der = request["spec"]["stubPKCS10Request"].as_str().context("no PKCS #10 request")?;
    let der = kubelet_model::base64::decode(der).context("it is no base64")?;
    // Reading it checks that whoever sent it holds the key.
    let csr = CertificateSigningRequestParams::from_der(&der.as_slice().into())?;
    let chain = csr.signed_by(issuer)?.pem().replace("\r\n", "\n");
    let now = Timestamp::now();
    let after = |minutes| (now + SignedDuration::from_mins(minutes)).to_string();
    let status = json!({"certificateChain": format!("noise\n{chain}"), "notBefore": after(-60),
        "beginRefreshAt": after(refresh), "notAfter": after(60)});
    answer(cluster, request, "Issued", &status)?;
    Ok((chain, csr.public_key.der_bytes().to_vec()))
}

/// Fails unless the example's pod has this chain, and the key that it is for.
fn check_bundle(cluster: &Cluster, chain: &str, public: &[u8]) -> Result<()> {
    let text = cluster.node.run_in("pod-certificate", "show", "cat /creds/bundle.pem")?;
    let (key, certificates) =
        text.split_once("-----BEGIN CERTIFICATE").context("no certificate")?;
    ensure!(format!("-----BEGIN CERTIFICATE{certificates}") == chain, "another chain");
    ensure!(KeyPair::from_pem(key)?.der_bytes() == public, "another key");
    Ok(())
}

fn wait_bundle(cluster: &Cluster, chain: &str, public: &[u8]) -> Result<()> {
    cluster.node.eventually("the next certificate", || check_bundle(cluster, chain, public))
}

#[test]
fn a_pod_is_given_a_certificate_and_the_next_one_in_time() -> Result<()> {
    let mut cluster = cluster(&["PodCertificateRequest"])?;
    let (_, issuer) = authority()?;
    let uid = cluster.apply_example("pod-certificate")?;
    let request = wait_request(&cluster, "pod-certificate")?;
    let node = cluster.api.object("nodes", "", cluster.node.klet.node_name()).context("no node")?;
    let spec = &request["spec"];
    assert_eq!(spec["signerName"], "example.com/pods");
    assert_eq!(spec["nodeUID"], node["metadata"]["uid"]);
    assert_eq!(spec["maxExpirationSeconds"], 86400);
    assert_eq!(spec["unverifiedUserAnnotations"], json!({"example.com/team": "web"}));
    wait_event(&cluster, "credential bundle is not issued yet")?;
    // It was to be refreshed long ago: the next is asked for at once.
    let (first, first_key) = issue(&cluster, &request, &issuer, -10)?;
    cluster.wait_ready("pod-certificate")?;
    check_bundle(&cluster, &first, &first_key)?;
    let shown = "stat -f -c %T /creds; stat -L -c %a /creds/bundle.pem";
    assert_eq!(cluster.node.run_in("pod-certificate", "show", shown)?, "tmpfs\n400\n");
    let request = wait_request(&cluster, "pod-certificate")?;
    let (second, second_key) = issue(&cluster, &request, &issuer, 30)?;
    assert_ne!(first_key, second_key);
    wait_bundle(&cluster, &second, &second_key)?;

    // Another life of the agent knows no key: the files stay until the next are issued.
    cluster.node.survive_kill()?;
    let request = wait_request(&cluster, "pod-certificate")?;
    check_bundle(&cluster, &second, &second_key)?;
    let (third, third_key) = issue(&cluster, &request, &issuer, 30)?;
    wait_bundle(&cluster, &third, &third_key)?;

    // Key and chain can be files of their own, for the user of the containers alone.
    let source = json!({"podCertificate": {"signerName": "example.com/pods",
        "keyType": "ECDSAP256", "keyPath": "tls/key", "certificateChainPath": "tls/chain"}});
    let both = pod("both", source.clone()).spec("securityContext", json!({"runAsUser": 1001}));
    let both = cluster.create_pod(&both)?;
    let request = wait_request(&cluster, "both")?;
    let (chain, _) = issue(&cluster, &request, &issuer, 30)?;
    cluster.wait_ready("both")?;
    assert_eq!(cluster.node.run_in("both", "main", "cat /v/tls/chain")?, chain);
    let shown = "stat -L -c '%a %u' /v/tls/key; head -n1 /v/tls/key";
    let shown = cluster.node.run_in("both", "main", shown)?;
    assert_eq!(shown, "600 1001\n-----BEGIN PRIVATE KEY-----\n");

    // A signer's no is final.
    cluster.create_pod(&pod("denied", source))?;
    let request = wait_request(&cluster, "denied")?;
    answer(&cluster, &request, "Denied", &json!({}))?;
    wait_event(&cluster, "was denied, reason=\"Tested\", message=\"so it is\"")?;
    wait_event(&cluster, "PodCertificateRequest was permanently denied: reason=\"Tested\"")?;
    let denied = cluster.pod("denied").context("no pod")?;
    assert_eq!(denied["status"]["phase"], "Pending", "{:#}", denied["status"]);
    for (name, uid) in [("pod-certificate", uid), ("both", both)] {
        cluster.delete_pod(name, None)?;
        cluster.wait_no_trace(name, &uid)?;
    }
    Ok(())
}

/// Certificates for whatever key a request is for, those included that rcgen does not know.
fn sign(request: &[u8], key: &KeyPair) -> Result<String> {
    let (_, request) = X509CertificationRequest::from_der(request)?;
    let info = request.certification_request_info;
    ensure!(info.subject.iter_rdn().count() == 0, "{}", info.subject);
    let algorithm = |writer: DERWriter<'_>| {
        let ecdsa_with_sha256 = ObjectIdentifier::from_slice(&[1, 2, 840, 10_045, 4, 3, 2]);
        writer.write_sequence(|writer| writer.next().write_oid(&ecdsa_with_sha256));
    };
    let time = |writer: DERWriter<'_>, text: &str| {
        let tag = Tag { tag_class: TagClass::Universal, tag_number: 24 };
        writer.write_tagged_implicit(tag, |writer| writer.write_bytes(text.as_bytes()));
    };
    let body = construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_tagged(Tag::context(0), |writer| writer.write_u8(2));
            writer.next().write_u8(1);
            algorithm(writer.next());
            writer.next().write_sequence(|_| {});
            writer.next().write_sequence(|writer| {
                time(writer.next(), "20200101000000Z");
                time(writer.next(), "20990101000000Z");
            });
            writer.next().write_sequence(|_| {});
            writer.next().write_der(info.subject_pki.raw);
        });
    });
    let signature = key.sign(&body)?;
    let certificate = construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(&body);
            algorithm(writer.next());
            writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
        });
    });
    let text = kubelet_model::base64::encode(&certificate);
    Ok(format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"))
}

/// The public key of a private one, in PKCS #8.
fn public_of(key: &[u8]) -> Result<Vec<u8>> {
    if let Ok(pair) = KeyPair::try_from(key) {
        return Ok(pair.der_bytes().to_vec());
    }
    let secret = yasna::parse_der(key, |reader| {
        reader.read_sequence(|reader| {
            reader.next().read_u8()?;
            reader.next().read_der()?;
            reader.next().read_bytes()
        })
    })?;
    let secret = yasna::parse_der(&secret, |reader| {
        reader.read_sequence(|reader| {
            reader.next().read_u8()?;
            let secret = reader.next().read_bytes()?;
            reader.next().read_der()?;
            Ok(secret)
        })
    })?;
    let key = p521::ecdsa::SigningKey::from_slice(&secret).context("no key of P-521")?;
    Ok(key.verifying_key().to_sec1_point(false).as_bytes().to_vec())
}

/// What the blocks of a text hold.
fn blocks(text: &str) -> Result<Vec<Vec<u8>>> {
    let all = Pem::iter_from_buffer(text.as_bytes());
    all.map(|block| Ok(block?.contents)).collect()
}

#[test]
fn a_pod_is_given_keys_of_every_type() -> Result<()> {
    let cluster = cluster(&["PodCertificateRequest"])?;
    let key = KeyPair::generate()?;
    // Bits of the public key, without those that tell what follows.
    let kinds = [
        ("RSA3072", "1.2.840.113549.1.1.1", 3072),
        ("RSA4096", "1.2.840.113549.1.1.1", 4096),
        ("ECDSAP256", "1.2.840.10045.2.1", 256),
        ("ECDSAP384", "1.2.840.10045.2.1", 384),
        ("ECDSAP521", "1.2.840.10045.2.1", 528),
        ("ED25519", "1.3.101.112", 256),
    ];
    let sources = kinds.map(|(kind, ..)| {
        json!({"podCertificate": {"signerName": "example.com/pods", "keyType": kind,
            "credentialBundlePath": kind}})
    });
    let manifest = pod("keys", json!({}))
        .spec("volumes", json!([{"name": "v", "projected": {"sources": sources}}]));
    let uid = cluster.create_pod(&manifest)?;
    for _ in kinds {
        let request = wait_request(&cluster, "keys")?;
        let der = request["spec"]["stubPKCS10Request"].as_str().context("no PKCS #10 request")?;
        let der = kubelet_model::base64::decode(der).context("it is no base64")?;
        let now = Timestamp::now();
        let after = |minutes| (now + SignedDuration::from_mins(minutes)).to_string();
        let status = json!({"certificateChain": sign(&der, &key)?, "notBefore": after(-60),
            "beginRefreshAt": after(30), "notAfter": after(60)});
        answer(&cluster, &request, "Issued", &status)?;
    }
    cluster.wait_ready("keys")?;
    for (kind, algorithm, bits) in kinds {
        let text = cluster.node.run_in("keys", "main", &format!("cat /v/{kind}"))?;
        assert!(text.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{kind}");
        let [own, certificate] = &blocks(&text)?[..] else { anyhow::bail!("{kind}: {text}") };
        let (_, certificate) = X509Certificate::from_der(certificate)?;
        let public = certificate.public_key();
        assert_eq!(public.algorithm.algorithm.to_id_string(), algorithm, "{kind}");
        assert_eq!(public.subject_public_key.data.as_ref(), public_of(own)?, "{kind}");
        let shown = match public.parsed()? {
            PublicKey::RSA(key) => key.key_size(),
            PublicKey::EC(point) => point.key_size(),
            _ => public.subject_public_key.data.len() * 8,
        };
        assert_eq!(shown, bits, "{kind}");
    }
    cluster.delete_pod("keys", None)?;
    cluster.wait_no_trace("keys", &uid)
}

#[test]
fn without_the_gates_a_pod_waits_and_says_why() -> Result<()> {
    let cluster = cluster(&[])?;
    let trust = json!({"clusterTrustBundle": {"name": "a", "path": "a.pem", "optional": true}});
    cluster.create_pod(&pod("trusting", trust))?;
    let certificate = json!({"podCertificate": {"signerName": "example.com/pods",
        "keyType": "ED25519", "keyPath": "key"}});
    cluster.create_pod(&pod("certified", certificate))?;
    wait_event(&cluster, "the feature gate ClusterTrustBundleProjection is off on this node")?;
    wait_event(&cluster, "the feature gate PodCertificateRequest is off on this node")?;
    let place = path(CERTIFICATES, "default", &["podcertificaterequests"]);
    let asked = cluster.api.ask(Call::get(&place))?;
    assert_eq!(asked["items"], json!([]));
    Ok(())
}
