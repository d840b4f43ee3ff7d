//! RSA keys: two primes, and what follows from them.
//!
//! Upstream: crypto/rsa.

use std::cell::Cell;

use crypto_bigint::{BoxedUint, ConcatenatingMul, NonZero, Odd, Resize};
use crypto_primes::hazmat::{SetBits, SmallFactorsSieveFactory};
use crypto_primes::{Flavor, is_prime, sieve_and_find};
use rand::CryptoRng;
use yasna::construct_der;

use super::{KeyError, oid, pkcs8};

/// The public exponent, as everybody has it.
const EXPONENT: u32 = 65537;
/// Numbers without small factors that are tested for one key. Some hundreds are enough; of
/// so many at least one is a prime, unless the numbers are not random.
const TESTS_MAX: u32 = 100_000;

/// A key of this many bits, in PKCS #8.
pub(super) fn make(
    bits: u32,
    rng: &mut impl CryptoRng,
    is_unwanted: &dyn Fn() -> bool,
) -> Result<Vec<u8>, KeyError> {
    let mut search = Search { bits, tests: Cell::new(0), is_unwanted };
    loop {
        let (one, other) = (search.prime(rng)?, search.prime(rng)?);
        let (p, q) = if one > other { (one, other) } else { (other, one) };
        if let Some(key) = from_primes(&p, &q).filter(|_| p != q) {
            return Ok(key);
        }
    }
}

struct Search<'a> {
    bits: u32,
    tests: Cell<u32>,
    is_unwanted: &'a dyn Fn() -> bool,
}

impl Search<'_> {
    /// A prime of half the bits; the product of two such has them all.
    fn prime(&mut self, rng: &mut impl CryptoRng) -> Result<BoxedUint, KeyError> {
        let none = || KeyError::NoPrime(self.bits);
        let of = SmallFactorsSieveFactory::new(Flavor::Any, self.bits / 2, SetBits::TwoMsb);
        let found = sieve_and_find(rng, of.map_err(|_| none())?, |_, number| {
            self.tests.set(self.tests.get() + 1);
            self.is_over() || is_prime(Flavor::Any, number)
        });
        match found {
            _ if (self.is_unwanted)() => Err(KeyError::Unwanted),
            Ok(Some(prime)) if !self.is_over() => Ok(prime),
            _ => Err(none()),
        }
    }

    fn is_over(&self) -> bool {
        self.tests.get() >= TESTS_MAX || (self.is_unwanted)()
    }
}

/// The key of two primes, the greater first; none if the exponent is not one for them.
fn from_primes(p: &BoxedUint, q: &BoxedUint) -> Option<Vec<u8>> {
    let one = BoxedUint::one();
    let (below_p, below_q) = (p.wrapping_sub(&one), q.wrapping_sub(&one));
    let inverse = |modulus: &BoxedUint| {
        let exponent = BoxedUint::from(EXPONENT).resize(modulus.bits_precision());
        exponent.invert_mod(&NonZero::new(modulus.clone()).into_option()?).into_option()
    };
    let odd_p = Odd::new(p.clone()).into_option()?;
    let parts = [
        BoxedUint::zero(),
        p.concatenating_mul(q),
        BoxedUint::from(EXPONENT),
        inverse(&below_p.concatenating_mul(&below_q))?,
        p.clone(),
        q.clone(),
        inverse(&below_p)?,
        inverse(&below_q)?,
        q.invert_odd_mod(&odd_p).into_option()?,
    ];
    let key = construct_der(|writer| {
        writer.write_sequence(|writer| {
            for part in &parts {
                writer.next().write_bigint_bytes(&part.to_be_bytes(), true);
            }
        });
    });
    let der = pkcs8(
        |writer| {
            writer.write_sequence(|writer| {
                writer.next().write_oid(&oid(&[1, 2, 840, 113_549, 1, 1, 1]));
                writer.next().write_null();
            });
        },
        &key,
    );
    Some(der)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn a_key_follows_from_its_primes() {
        let number = |value: u32| BoxedUint::from(u64::from(value));
        let der = from_primes(&number(65_521), &number(257)).unwrap();
        let parts = yasna::parse_der(&der, |reader| {
            reader.read_sequence(|reader| {
                reader.next().read_u8()?;
                reader.next().read_der()?;
                reader.next().read_bytes()
            })
        });
        let parts = yasna::parse_der(&parts.unwrap(), |reader| {
            reader.collect_sequence_of(|reader| reader.read_u64())
        });
        let parts = parts.unwrap();
        let [0, n, e, d, 65_521, 257, dp, dq, inverse] = parts[..] else { panic!("{parts:?}") };
        assert_eq!((n, e), (65_521 * 257, 65_537));
        assert_eq!((e * d) % (65_520 * 256), 1);
        assert_eq!((e * dp % 65_520, e * dq % 256), (1, 1));
        assert_eq!(257 * inverse % 65_521, 1);
        // The exponent divides one less.
        assert_eq!(from_primes(&number(40 * EXPONENT + 1), &number(257)), None);
    }

    #[test]
    fn the_same_random_numbers_make_the_same_key() {
        let make = |seed| make(1024, &mut StdRng::seed_from_u64(seed), &|| false).unwrap();
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
    }

    #[test]
    fn a_search_ends_in_the_middle_when_nobody_wants_it() {
        let looks = Cell::new(0);
        let is_unwanted = || {
            looks.set(looks.get() + 1);
            looks.get() > 3
        };
        let made = make(4096, &mut StdRng::seed_from_u64(1), &is_unwanted);
        assert_eq!(made, Err(KeyError::Unwanted));
        assert!(looks.get() <= 6, "{}", looks.get());
    }
}
