//! Words that both ends of a connection know before the first header block.
//!
//! The protocol fixes them to the byte: draft-mbelshe-httpbis-spdy-00, 2.6.10.1.

/// Each is preceded by its length in four bytes.
const WORDS: &str = "\
    options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding \
    content-language content-length content-location content-md5 content-range content-type date \
    etag expect expires from host if-match if-modified-since if-none-match if-range \
    if-unmodified-since last-modified location max-forwards pragma proxy-authenticate \
    proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url \
    public set-cookie keep-alive origin";

/// These follow as they are.
const REST: &str = "\
    100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request\
    401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented\
    503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 \
    Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,public\
    privatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// The dictionary that header blocks are compressed with.
pub(super) fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1_423);
    for word in WORDS.split(' ') {
        let word = word.replace('_', " ");
        // The longest has twenty letters.
        bytes.extend([0, 0, 0, word.len() as u8]);
        bytes.extend(word.as_bytes());
    }
    bytes.extend(REST.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_protocols() {
        let bytes = dictionary();
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in &bytes {
            a = (a + u32::from(*byte)) % 65_521;
            b = (b + a) % 65_521;
        }
        // The name every compressed stream calls it by.
        assert_eq!((bytes.len(), (b << 16) | a), (1_423, 0xe3c6_a7c2));
    }
}
