//! A store that speaks as much S3 as is asked of one, with faults on demand: a thread for each connection,
//! and bytes of HTTP written by hand, so that an answer can be as wrong as it has to be.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

/// What goes wrong with one request.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// It is not done, and answered so.
    Says(u16, &'static str),
    /// It is done, and answered so all the same.
    DoneSays(u16, &'static str),
    /// It is not done, and the connection ends.
    Reset,
    /// It is done, and the connection ends.
    DoneReset,
    /// It is done when the client has given up.
    Late,
    /// It is done twice, as by a proxy that asks again, and the second answer is given.
    Twice,
    /// The body of the answer ends in the middle.
    Short,
    /// The body of the answer has no end.
    Endless,
    /// An answer of nothing but a status, with a body that has no end.
    EndlessError,
    /// The range that was asked for is not heeded.
    WholeObject,
    /// Another range comes.
    OtherRange,
    /// The answer does not say where it ends.
    NoLength,
    /// The answer's ETag is none of the object's.
    WrongETag,
}

/// How the store is.
#[derive(Debug, Default)]
pub struct Store {
    pub objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// The faults of the next requests.
    pub next: Mutex<VecDeque<Fault>>,
    /// One fault in so many requests, by chance; 0 for none.
    pub one_in: AtomicU64,
    /// `If-None-Match` is taken for nothing.
    pub overwrites: AtomicBool,
    /// Requests so far, each as `METHOD path?query`.
    pub log: Mutex<Vec<String>>,
    /// Connections now, and the most at once.
    pub open: AtomicUsize,
    pub most_open: AtomicUsize,
    /// Requests that are to be done when their client has given up.
    late: AtomicUsize,
}

/// A store on a port of the loopback.
pub struct Server {
    pub store: Arc<Store>,
    pub address: SocketAddr,
    ends: Arc<AtomicBool>,
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Server {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (store, ends) = (Arc::new(Store::default()), Arc::new(AtomicBool::new(false)));
        let (of, until) = (Arc::clone(&store), Arc::clone(&ends));
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                if until.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, store) = (stream.unwrap(), Arc::clone(&of));
                thread::spawn(move || store.serve(&stream, number as u64));
            }
        });
        Self { store, address, ends }
    }

    pub fn fail_next(&self, fault: Fault) {
        self.store.next.lock().unwrap().push_back(fault);
    }

    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.store.log.lock().unwrap())
    }

    /// Waits until late requests are done. The runtime goes on meanwhile: it closes their connections.
    pub async fn settle(&self) {
        while self.store.late.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // Wakes what accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn read_request(stream: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = String::new();
    if stream.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.trim().to_owned()),
            None => break,
        };
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Request { method, path: path.to_owned(), query: query.to_owned(), headers, body })
}

struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    fn error(status: u16, code: &str) -> Self {
        let body =
            format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>so it is</Message></Error>");
        Self { status, headers: "Content-Type: application/xml\r\n".into(), body: body.into_bytes() }
    }

    fn ok(headers: &str, body: Vec<u8>) -> Self {
        Self { status: 200, headers: headers.to_owned(), body }
    }

    fn write(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        let Self { status, headers, body } = self;
        let length =
            if *status == 204 { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let mut bytes = format!("HTTP/1.1 {status} Word\r\n{length}{headers}\r\n").into_bytes();
        bytes.extend_from_slice(body);
        stream.write_all(&bytes)
    }
}

fn is_signed(request: &Request) -> bool {
    let signature = request.headers.get("authorization").map_or("", String::as_str);
    let digest = ring::digest::digest(&ring::digest::SHA256, &request.body);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    signature.starts_with("AWS4-HMAC-SHA256 Credential=KEY/")
        && request.headers.get("x-amz-content-sha256") == Some(&hex)
}

impl Store {
    fn serve(&self, stream: &TcpStream, number: u64) {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_open.fetch_max(open, Ordering::SeqCst);
        let mut rng = Rng::with_seed(number);
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader) {
            if !self.answer(stream, &mut reader, &request, &mut rng) {
                break;
            }
        }
        // The client may be gone.
        let _ = stream.shutdown(Shutdown::Both);
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    fn fault(&self, rng: &mut Rng) -> Option<Fault> {
        if let Some(fault) = self.next.lock().unwrap().pop_front() {
            return Some(fault);
        }
        let one_in = self.one_in.load(Ordering::SeqCst);
        if one_in == 0 || rng.u64(..one_in) > 0 {
            return None;
        }
        Some(match rng.u32(..40) {
            0..8 => Fault::Says(503, "SlowDown"),
            8..16 => Fault::DoneSays(500, "InternalError"),
            16..20 => Fault::Reset,
            20..28 => Fault::DoneReset,
            28..29 => Fault::Late,
            29..33 => Fault::Twice,
            33..37 => Fault::Short,
            37 => Fault::OtherRange,
            38 => Fault::Says(409, "ConditionalRequestConflict"),
            _ => Fault::Endless,
        })
    }

    /// Answers; whether the connection stays.
    fn answer(
        &self,
        mut stream: &TcpStream,
        reader: &mut BufReader<&TcpStream>,
        request: &Request,
        rng: &mut Rng,
    ) -> bool {
        let target = match request.query.as_str() {
            "" => request.path.clone(),
            query => format!("{}?{query}", request.path),
        };
        self.log.lock().unwrap().push(format!("{} {target}", request.method));
        let fault = self.fault(rng);
        match fault {
            None => self.done(request).write(stream).is_ok(),
            Some(Fault::Says(status, code)) => Answer::error(status, code).write(stream).is_ok(),
            Some(Fault::DoneSays(status, code)) => {
                self.done(request);
                Answer::error(status, code).write(stream).is_ok()
            }
            Some(Fault::Reset) => false,
            Some(Fault::DoneReset) => {
                self.done(request);
                false
            }
            Some(Fault::Late) => {
                self.late.fetch_add(1, Ordering::SeqCst);
                // Until the client closes the connection.
                let _ = reader.read(&mut [0]);
                self.done(request);
                self.late.fetch_sub(1, Ordering::SeqCst);
                false
            }
            Some(Fault::Twice) => {
                self.done(request);
                self.done(request).write(stream).is_ok()
            }
            Some(Fault::Short) => {
                let answer = self.done(request);
                let (length, half) = (answer.body.len().max(1), &answer.body[..answer.body.len() / 2]);
                let head = format!(
                    "HTTP/1.1 {} X\r\nContent-Length: {length}\r\n{}\r\n",
                    answer.status, answer.headers
                );
                let _ = stream.write_all(&[head.as_bytes(), half].concat());
                false
            }
            Some(fault @ (Fault::Endless | Fault::EndlessError)) => {
                let answer = self.done(request);
                let status = if fault == Fault::Endless { answer.status } else { 500 };
                let head =
                    format!("HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n{}\r\n", answer.headers);
                let mut all = head.into_bytes();
                loop {
                    if stream.write_all(&all).is_err() {
                        return false;
                    }
                    all = [b"10000\r\n", &[b'x'; 0x10000][..], b"\r\n"].concat();
                }
            }
            Some(Fault::WholeObject) => {
                let headers = request.headers.iter().filter(|(name, _)| *name != "range");
                let headers = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
                let Request { method, path, query, body, .. } = request;
                let (method, path, query, body) = (method.clone(), path.clone(), query.clone(), body.clone());
                self.done(&Request { method, path, query, headers, body }).write(stream).is_ok()
            }
            Some(Fault::OtherRange) => {
                let mut answer = self.done(request);
                answer.headers = answer.headers.replace("bytes ", "bytes 9");
                answer.write(stream).is_ok()
            }
            Some(Fault::NoLength) => {
                let answer = self.done(request);
                let head =
                    format!("HTTP/1.1 {} X\r\nConnection: close\r\n{}\r\n", answer.status, answer.headers);
                let _ = stream.write_all(&[head.as_bytes(), &answer.body].concat());
                false
            }
            Some(Fault::WrongETag) => {
                let mut answer = self.done(request);
                answer.headers = "ETag: \"00000000000000000000000000000000\"\r\n".into();
                answer.write(stream).is_ok()
            }
        }
    }

    fn done(&self, request: &Request) -> Answer {
        if !is_signed(request) {
            return Answer::error(403, "InvalidAccessKeyId");
        }
        let Some(key) = request.path.strip_prefix("/tank").map(|key| key.trim_start_matches('/')) else {
            return Answer::error(404, "NoSuchBucket");
        };
        let mut objects = self.objects.lock().unwrap();
        match (request.method.as_str(), key) {
            ("PUT", key) => {
                let is_new = request.headers.get("if-none-match").is_some_and(|value| value == "*");
                if is_new && objects.contains_key(key) && !self.overwrites.load(Ordering::SeqCst) {
                    return Answer::error(412, "PreconditionFailed");
                }
                objects.insert(key.to_owned(), request.body.clone());
                Answer::ok("ETag: \"e\"\r\n", vec![])
            }
            ("DELETE", key) => {
                objects.remove(key);
                Answer { status: 204, headers: String::new(), body: vec![] }
            }
            ("GET", "") => list(&objects, &request.query),
            ("GET", key) => {
                let Some(object) = objects.get(key) else { return Answer::error(404, "NoSuchKey") };
                let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes="));
                let Some((first, last)) = range.and_then(|range| range.split_once('-')) else {
                    return Answer::ok("ETag: \"e\"\r\n", object.clone());
                };
                let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
                if first >= object.len() {
                    return Answer::error(416, "InvalidRange");
                }
                let last = last.min(object.len() - 1);
                let headers = format!("Content-Range: bytes {first}-{last}/{}\r\n", object.len());
                Answer { status: 206, headers, body: object[first..=last].to_vec() }
            }
            _ => Answer::error(405, "MethodNotAllowed"),
        }
    }
}

fn list(objects: &BTreeMap<String, Vec<u8>>, query: &str) -> Answer {
    let of = |name: &str| {
        let found = query.split('&').find_map(|pair| pair.strip_prefix(name));
        found.unwrap_or_default().replace("%2F", "/")
    };
    let (prefix, after) = (of("prefix="), of("start-after="));
    let most: usize = of("max-keys=").parse().unwrap();
    let all: Vec<_> = objects.iter().filter(|(key, _)| key.starts_with(&prefix) && **key > after).collect();
    let listed: String = all
        .iter()
        .take(most)
        .map(|(key, body)| format!("<Contents><Key>{key}</Key><Size>{}</Size></Contents>", body.len()))
        .collect();
    let is_cut = all.len() > most;
    let body = format!("<ListBucketResult><IsTruncated>{is_cut}</IsTruncated>{listed}</ListBucketResult>");
    Answer::ok("Content-Type: application/xml\r\n", body.into_bytes())
}
