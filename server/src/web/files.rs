//! The files of the page, which are in the binary.
//!
//! They are compressed once. A browser asks each time whether its copy is still right (`no-cache`, with an
//! ETag), so that a page is never older than its daemon.

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libdeflater::{CompressionLvl, Compressor};
use ring::digest::{SHA256, digest};

/// A file of the page.
#[derive(Debug)]
pub struct PageFile {
    /// Its path.
    pub path: &'static str,
    media: &'static str,
    bytes: &'static [u8],
}

/// All files.
pub static ALL: [PageFile; 4] = [
    PageFile {
        path: "/",
        media: "text/html; charset=utf-8",
        bytes: include_bytes!("../../../dashboard/dist/index.html"),
    },
    PageFile {
        path: "/app.js",
        media: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../../../dashboard/dist/app.js"),
    },
    PageFile {
        path: "/app.css",
        media: "text/css; charset=utf-8",
        bytes: include_bytes!("../../../dashboard/dist/app.css"),
    },
    PageFile {
        path: "/icon.svg",
        media: "image/svg+xml",
        bytes: include_bytes!("../../../dashboard/dist/icon.svg"),
    },
];

/// A file as it is sent.
struct Sent {
    etag: String,
    gzip: Bytes,
}

static SENT: LazyLock<[Sent; ALL.len()]> = LazyLock::new(|| {
    ALL.each_ref().map(|file| {
        let hash = URL_SAFE_NO_PAD.encode(digest(&SHA256, file.bytes));
        Sent { etag: format!("\"{}\"", &hash[..16]), gzip: gzip(file.bytes) }
    })
});

fn gzip(bytes: &[u8]) -> Bytes {
    let mut compressor = Compressor::new(CompressionLvl::best());
    let mut room = vec![0; compressor.gzip_compress_bound(bytes.len())];
    match compressor.gzip_compress(bytes, &mut room) {
        Ok(length) => {
            room.truncate(length);
            room.into()
        }
        // There is room for all, so that this cannot be. Without it the file is sent as it is.
        Err(_) => Bytes::new(),
    }
}

/// Whether a client takes gzip.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| {
        let (name, weight) = part.split_once(';').unwrap_or((part, ""));
        let weight: String = weight.chars().filter(|c| !c.is_whitespace()).collect();
        let is_refused = weight.strip_prefix("q=").is_some_and(|q| q.parse::<f32>().is_ok_and(|q| q <= 0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// Answers a request for the file with this number.
pub fn answer(number: usize, headers: &HeaderMap) -> Response {
    let (Some(file), Some(sent)) = (ALL.get(number), SENT.get(number)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known.flat_map(|value| value.split(',')).any(|tag| {
        let tag = tag.trim().trim_start_matches("W/");
        tag == sent.etag || tag == "*"
    });
    let common: [(HeaderName, &str); 3] =
        [(header::ETAG, &sent.etag), (header::CACHE_CONTROL, "no-cache"), (header::VARY, "accept-encoding")];
    if is_known {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let media = [(header::CONTENT_TYPE, file.media)];
    match takes_gzip(headers) && !sent.gzip.is_empty() {
        true => {
            let coding = [(header::CONTENT_ENCODING, "gzip")];
            (StatusCode::OK, common, media, coding, Body::from(sent.gzip.clone())).into_response()
        }
        false => (StatusCode::OK, common, media, Body::from(file.bytes)).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_to_clients_that_take_it() {
        let headers = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
            headers
        };
        for taken in ["gzip", "br, gzip", "GZIP;q=0.5", "deflate, gzip ; q=1.0"] {
            assert!(takes_gzip(&headers(taken)), "{taken}");
        }
        for not in ["", "br", "gzip;q=0", "gzip; q = 0.000", "xgzip"] {
            assert!(!takes_gzip(&headers(not)), "{not}");
        }
    }

    /// A style or a script in the page would be refused by the browser.
    #[test]
    fn the_page_is_small_and_has_nothing_inline() {
        let size: usize = SENT.iter().map(|sent| sent.gzip.len()).sum();
        assert!(size < 200 << 10, "{size}");
        let page = std::str::from_utf8(ALL[0].bytes).unwrap();
        assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" onclick="));
        for script in page.split("<script").skip(1) {
            let (tag, rest) = script.split_once('>').unwrap();
            assert!(tag.contains(" src=") && rest.trim_start().starts_with("</script>"), "{script}");
        }
    }
}
