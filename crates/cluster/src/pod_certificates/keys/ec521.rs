//! Keys of the curve P-521, which the library that signs does not know.
//!
//! Upstream: crypto/ecdsa, as crypto/x509 writes its keys and requests.

use p521::ecdsa::signature::Signer;
use p521::ecdsa::{Signature, SigningKey};
use p521::elliptic_curve::Generate;
use rand::CryptoRng;
use yasna::{DERWriter, Tag, construct_der};

use super::{NewKey, PrivateKey, oid, pkcs8};

/// A new key, and what it proves.
pub(super) fn make(rng: &mut impl CryptoRng) -> NewKey {
    let key = SigningKey::generate_from_rng(rng);
    let public = key.verifying_key().to_sec1_point(false);
    let public = public.as_bytes();
    let info = construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_u8(0);
            // Nobody, of whom nothing is said.
            writer.next().write_sequence(|_| {});
            writer.next().write_sequence(|writer| {
                algorithm(writer.next());
                write_bits(writer.next(), public);
            });
            writer.next().write_tagged_implicit(Tag::context(0), |w| w.write_sequence(|_| {}));
        });
    });
    let signature: Signature = key.sign(&info);
    let (r, s) = signature.split_bytes();
    let signature = construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_bigint_bytes(&r, true);
            writer.next().write_bigint_bytes(&s, true);
        });
    });
    let proof = construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(&info);
            // ecdsa-with-SHA512
            writer.next().write_sequence(|writer| {
                writer.next().write_oid(&oid(&[1, 2, 840, 10_045, 4, 3, 4]));
            });
            write_bits(writer.next(), &signature);
        });
    });
    let own = construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_u8(1);
            writer.next().write_bytes(&key.to_bytes());
            writer.next().write_tagged(Tag::context(1), |writer| write_bits(writer, public));
        });
    });
    NewKey { key: PrivateKey::new(&pkcs8(algorithm, &own)), proof }
}

/// id-ecPublicKey of secp521r1.
fn algorithm(writer: DERWriter<'_>) {
    writer.write_sequence(|writer| {
        writer.next().write_oid(&oid(&[1, 2, 840, 10_045, 2, 1]));
        writer.next().write_oid(&oid(&[1, 3, 132, 0, 35]));
    });
}

fn write_bits(writer: DERWriter<'_>, bytes: &[u8]) {
    writer.write_bitvec_bytes(bytes, bytes.len() * 8);
}

#[cfg(test)]
mod tests {
    use p521::ecdsa::VerifyingKey;
    use p521::ecdsa::signature::Verifier;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer;

    use super::*;
    use crate::pem;

    /// A whole number of DER as so many bytes.
    fn fixed(number: &[u8]) -> [u8; 66] {
        let mut bytes = [0; 66];
        let number: &[u8] = if number.len() > 66 { &number[1..] } else { number };
        bytes[66 - number.len()..].copy_from_slice(number);
        bytes
    }

    #[test]
    fn the_request_proves_that_the_key_is_held() {
        let NewKey { key, proof } = make(&mut StdRng::seed_from_u64(1));
        let (rest, request) = X509CertificationRequest::from_der(&proof).unwrap();
        assert!(rest.is_empty());
        let info = &request.certification_request_info;
        assert_eq!((info.version.0, info.subject.iter_rdn().count()), (0, 0));
        assert!(info.attributes().is_empty());
        assert_eq!(request.signature_algorithm.algorithm.to_id_string(), "1.2.840.10045.4.3.4");
        let public = &info.subject_pki.subject_public_key.data;
        let (r, s) = yasna::parse_der(&request.signature_value.data, |reader| {
            reader.read_sequence(|reader| {
                let mut next = || reader.next().read_bigint_bytes().map(|(bytes, _)| bytes);
                Ok((next()?, next()?))
            })
        })
        .unwrap();
        let signature = Signature::from_scalars(fixed(&r), fixed(&s)).unwrap();
        let verifying = VerifyingKey::from_sec1_bytes(public).unwrap();
        verifying.verify(info.raw, &signature).unwrap();

        // The file holds the key of that public key.
        let der = pem::blocks(key.text()).remove(0);
        let (version, curve, own) = yasna::parse_der(&der, |reader| {
            reader.read_sequence(|reader| {
                let version = reader.next().read_u8()?;
                let curve = reader.next().read_sequence(|reader| {
                    reader.next().read_oid()?;
                    reader.next().read_oid()
                })?;
                Ok((version, curve, reader.next().read_bytes()?))
            })
        })
        .unwrap();
        assert_eq!((version, curve), (0, oid(&[1, 3, 132, 0, 35])));
        let secret = yasna::parse_der(&own, |reader| {
            reader.read_sequence(|reader| {
                assert_eq!(reader.next().read_u8()?, 1);
                let secret = reader.next().read_bytes()?;
                let told = reader.next().read_tagged(Tag::context(1), |r| r.read_bitvec_bytes())?;
                assert_eq!(&told.0, public.as_ref());
                Ok(secret)
            })
        })
        .unwrap();
        assert_eq!(*SigningKey::from_slice(&secret).unwrap().verifying_key(), verifying);
    }
}
