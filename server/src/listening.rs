//! TCP listeners that may have to wait for their addresses.
//!
//! # The idea
//! A machine that boots may start the daemon before its network is up, its names can be resolved, or a
//! certificate is there. No pool is to wait for that, and none is to be lost to it. So a [`Listener`] is made
//! without an error: what cannot be listened on yet is tried again ([`FIRST_RETRY`] to [`LAST_RETRY`]), as
//! long as the daemon lives, and [`Listening`] says what is waited for. What is listened on is served
//! meanwhile.
//!
//! What is needed beside the address (a key for TLS, secrets) is loaded before the first address is listened
//! on: no client is let in without it.
//!
//! A listener whose socket fails is opened again in the same way.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use device::IgnorePoison;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::time::{Instant, sleep_until, timeout};

use crate::block::accepted;
use crate::socket::Inherited;

/// The time after which an address is tried again; then twice as long, and so on.
pub const FIRST_RETRY: Duration = Duration::from_millis(500);
/// The longest such time.
pub const LAST_RETRY: Duration = Duration::from_secs(5);
/// How long the start of the daemon waits for names that cannot be resolved.
const FIRST_TRY_LIMIT: Duration = Duration::from_secs(1);

/// An address to listen on: that of an interface, or a host's name, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// The address or name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether only this machine itself can reach it.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => self.host.eq_ignore_ascii_case("localhost"),
        }
    }
}

impl FromStr for HostPort {
    type Err = String;

    /// Reads `ADDRESS:PORT`, `[ADDRESS]:PORT` or `NAME:PORT`.
    ///
    /// # Errors
    /// It is something else, for a person.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not ADDRESS:PORT, [ADDRESS]:PORT or NAME:PORT");
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::from(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = !host.is_empty() && host.bytes().all(is_plain) && !host.starts_with('-');
        // What has only digits and dots is an address with a mistake.
        let is_number = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        match port.parse() {
            Ok(port) if is_name && !is_number => Ok(Self { host: host.to_owned(), port }),
            _ => Err(wrong()),
        }
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        let scope = match address {
            SocketAddr::V6(address) if address.scope_id() != 0 => format!("%{}", address.scope_id()),
            _ => String::new(),
        };
        Self { host: format!("{}{scope}", address.ip()), port: address.port() }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Where a service listens now, and what it waits for. Clones tell of the same one.
#[derive(Debug, Clone, Default)]
pub struct Listening(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    addresses: Vec<SocketAddr>,
    waiting: Vec<String>,
    /// Copies of the sockets, with their places.
    sockets: Vec<(String, Arc<OwnedFd>)>,
}

impl Listening {
    /// The addresses, in the order in which they were asked for.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.lock().ignore_poison().addresses.clone()
    }

    /// The sockets, with the places where they were asked for.
    pub fn sockets(&self) -> Vec<(String, Arc<OwnedFd>)> {
        self.0.lock().ignore_poison().sockets.clone()
    }

    /// What is waited for, for a person.
    pub fn waiting(&self) -> Vec<String> {
        self.0.lock().ignore_poison().waiting.clone()
    }
}

/// A place that is asked for.
#[derive(Debug)]
struct Spot {
    place: HostPort,
    sockets: Vec<TcpListener>,
    /// Why some or all of its addresses are not listened on.
    fault: Option<String>,
}

/// What is to be had before clients are let in.
type Load<T> = Arc<dyn Fn() -> Result<T, String> + Send + Sync>;

/// The outcome of one try of a place: new sockets, and why some are missing.
type Tried = (usize, Vec<TcpListener>, Option<String>);

/// What came at a socket, with the numbers of its place and of the socket there.
type Came = (usize, usize, io::Result<(TcpStream, SocketAddr)>);

/// What a listener does next.
enum Step {
    Came(Vec<Came>),
    Tried(Vec<Tried>),
    TryAgain,
}

/// Listens on any number of places.
pub struct Listener<T = ()> {
    service: &'static str,
    load: Load<T>,
    loaded: Option<T>,
    load_fault: Option<String>,
    spots: Vec<Spot>,
    listening: Listening,
    /// A try that goes on.
    trying: Option<BoxFuture<'static, Vec<Tried>>>,
    again: Instant,
    after: Duration,
    /// Accepted connections of a round.
    came: VecDeque<(TcpStream, SocketAddr)>,
}

impl<T> fmt::Debug for Listener<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("service", &self.service).field("spots", &self.spots).finish()
    }
}

impl<T: Clone + Send> Listener<T> {
    /// Listens on these places for a service of this name, as far as that can be done now. Clients are let in
    /// once `load` gave what they need.
    pub async fn bind(
        service: &'static str,
        places: Vec<HostPort>,
        load: impl Fn() -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        Self::bind_with(service, places, load, &mut Inherited::default()).await
    }

    /// The same, with sockets that listen already where there are some.
    pub async fn bind_with(
        service: &'static str,
        places: Vec<HostPort>,
        load: impl Fn() -> Result<T, String> + Send + Sync + 'static,
        inherited: &mut Inherited,
    ) -> Self {
        let spot = |place: HostPort| {
            let there = inherited.take(service, &place.to_string()).into_iter();
            let sockets = there.filter_map(|socket| listening_already(socket).ok()).collect();
            Spot { place, sockets, fault: None }
        };
        let mut listener = Self {
            service,
            load: Arc::new(load),
            loaded: None,
            load_fault: None,
            spots: places.into_iter().map(spot).collect(),
            listening: Listening::default(),
            trying: None,
            again: Instant::now(),
            after: Duration::ZERO,
            came: VecDeque::new(),
        };
        listener.begin_trying();
        if let Some(trying) = &mut listener.trying {
            match timeout(FIRST_TRY_LIMIT, trying).await {
                Ok(tried) => listener.take(tried),
                Err(_) => {
                    for spot in &mut listener.spots {
                        spot.fault = Some("its name is still being resolved".into());
                    }
                }
            }
        }
        listener.tell();
        listener
    }

    /// Of a socket that listens already, with what clients need.
    pub fn of(service: &'static str, socket: TcpListener, loaded: T) -> io::Result<Self>
    where
        T: Sync + 'static,
    {
        let place = HostPort::from(socket.local_addr()?);
        let again = loaded.clone();
        let listener = Self {
            service,
            load: Arc::new(move || Ok(again.clone())),
            loaded: Some(loaded),
            load_fault: None,
            spots: vec![Spot { place, sockets: vec![socket], fault: None }],
            listening: Listening::default(),
            trying: None,
            again: Instant::now(),
            after: Duration::ZERO,
            came: VecDeque::new(),
        };
        listener.tell();
        Ok(listener)
    }

    /// Where it listens, also later.
    pub fn listening(&self) -> Listening {
        self.listening.clone()
    }

    /// What clients need, as soon as it is there.
    pub async fn loaded(&mut self) -> T {
        loop {
            if let Some(loaded) = &self.loaded {
                return loaded.clone();
            }
            self.go_on().await;
        }
    }

    /// The next connection, and where it comes from.
    pub async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            if let Some(came) = self.came.pop_front() {
                return came;
            }
            let (is_trying, is_incomplete) = (self.trying.is_some(), self.is_incomplete());
            let (spots, trying, again) = (&self.spots, &mut self.trying, self.again);
            let step = tokio::select! {
                came = came(spots) => Step::Came(came),
                tried = ended(trying), if is_trying => Step::Tried(tried),
                () = sleep_until(again), if is_incomplete && !is_trying => Step::TryAgain,
            };
            match step {
                Step::Tried(tried) => {
                    self.take(tried);
                    self.tell();
                }
                Step::TryAgain => self.begin_trying(),
                Step::Came(came) => {
                    for (spot, socket, result) in came {
                        self.take_connection(spot, socket, result).await;
                    }
                }
            }
        }
    }

    /// Goes on with what is waited for.
    async fn go_on(&mut self) {
        match self.trying.is_some() {
            true => {
                let tried = ended(&mut self.trying).await;
                self.take(tried);
                self.tell();
            }
            false => {
                sleep_until(self.again).await;
                self.begin_trying();
            }
        }
    }

    fn is_incomplete(&self) -> bool {
        self.loaded.is_none() || self.spots.iter().any(|spot| spot.sockets.is_empty() || spot.fault.is_some())
    }

    async fn take_connection(
        &mut self,
        spot: usize,
        socket: usize,
        result: io::Result<(TcpStream, SocketAddr)>,
    ) {
        match accepted(result).await {
            Ok(Some((stream, peer))) => {
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                self.came.push_back((stream, peer));
            }
            Ok(None) => {}
            Err(error) => {
                let Some(spot) = self.spots.get_mut(spot) else { return };
                tracing::error!(service = self.service, place = %spot.place, %error, "a listener failed");
                if socket < spot.sockets.len() {
                    drop(spot.sockets.remove(socket));
                }
                spot.fault = Some(error.to_string());
                self.again = Instant::now() + FIRST_RETRY;
                self.tell();
            }
        }
    }

    /// Begins to listen on what is missing.
    fn begin_trying(&mut self) {
        if self.loaded.is_none() {
            match (self.load)() {
                Ok(loaded) => (self.loaded, self.load_fault) = (Some(loaded), None),
                Err(fault) => {
                    if self.load_fault.as_ref() != Some(&fault) {
                        tracing::error!("{} does not listen yet: {fault}; it is tried again", self.service);
                    }
                    self.load_fault = Some(fault);
                    self.wait();
                    self.tell();
                    return;
                }
            }
        }
        let missing = self.spots.iter().enumerate();
        let missing = missing.filter(|(_, spot)| spot.sockets.is_empty() || spot.fault.is_some());
        let tries: Vec<_> = missing
            .map(|(number, spot)| {
                let open = spot.sockets.iter().filter_map(|socket| socket.local_addr().ok());
                tried(number, spot.place.clone(), open.map(|address| address.ip()).collect())
            })
            .collect();
        self.trying = Some(futures_util::future::join_all(tries).boxed());
    }

    /// Takes the outcome of a try.
    fn take(&mut self, tried: Vec<Tried>) {
        self.trying = None;
        for (number, sockets, fault) in tried {
            let Some(spot) = self.spots.get_mut(number) else { continue };
            match &fault {
                Some(fault) if spot.fault.as_ref() != Some(fault) => tracing::warn!(
                    "{} does not listen on {} yet: {fault}; it is tried again",
                    self.service,
                    spot.place
                ),
                None if spot.fault.is_some() => {
                    tracing::info!("{} listens on {} now", self.service, spot.place);
                }
                _ => {}
            }
            spot.sockets.extend(sockets);
            spot.fault = fault;
        }
        match self.is_incomplete() {
            true => self.wait(),
            false => self.after = Duration::ZERO,
        }
    }

    fn wait(&mut self) {
        self.after = (self.after * 2).clamp(FIRST_RETRY, LAST_RETRY);
        self.again = Instant::now() + self.after;
    }

    fn tell(&self) {
        let open = self.spots.iter().flat_map(|spot| &spot.sockets);
        let addresses = open.filter_map(|socket| socket.local_addr().ok()).map(|address| {
            // A socket of both families that is bound to an IPv4 address says so.
            SocketAddr::new(address.ip().to_canonical(), address.port())
        });
        let addresses = addresses.collect();
        let waiting = match &self.load_fault {
            Some(fault) => vec![fault.clone()],
            None => {
                let faults = self.spots.iter().filter_map(|spot| Some((spot, spot.fault.as_ref()?)));
                faults.map(|(spot, fault)| format!("{}: {fault}", spot.place)).collect()
            }
        };
        let sockets = self.spots.iter().flat_map(|spot| {
            let copies = spot.sockets.iter().filter_map(|socket| socket.as_fd().try_clone_to_owned().ok());
            copies.map(|copy| (spot.place.to_string(), Arc::new(copy)))
        });
        let sockets = sockets.collect();
        *self.listening.0.lock().ignore_poison() = State { addresses, waiting, sockets };
    }
}

/// A socket of another daemon.
fn listening_already(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// What came at all sockets: of each one connection at most, so that none has to wait for another.
async fn came(spots: &[Spot]) -> Vec<Came> {
    poll_fn(|context| {
        let mut came = Vec::new();
        for (number, spot) in spots.iter().enumerate() {
            for (socket, listener) in spot.sockets.iter().enumerate() {
                if let Poll::Ready(result) = listener.poll_accept(context) {
                    came.push((number, socket, result));
                }
            }
        }
        if came.is_empty() { Poll::Pending } else { Poll::Ready(came) }
    })
    .await
}

/// The outcome of a try that goes on.
async fn ended(trying: &mut Option<BoxFuture<'static, Vec<Tried>>>) -> Vec<Tried> {
    match trying {
        Some(trying) => trying.await,
        None => Vec::new(),
    }
}

/// Listens on the addresses of a place that are not among the open ones.
async fn tried(number: usize, place: HostPort, open: Vec<IpAddr>) -> Tried {
    let (mut sockets, mut fault) = (Vec::new(), None);
    let addresses = match lookup_host((place.host.as_str(), place.port)).await {
        Ok(addresses) => addresses.collect(),
        Err(error) => return (number, sockets, Some(error.to_string())),
    };
    // A name may have an address twice.
    let mut addresses: Vec<SocketAddr> = addresses;
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        fault = Some("its name has no address".into());
    }
    for address in addresses.into_iter().filter(|address| !open.contains(&address.ip())) {
        match TcpListener::bind(address).await {
            Ok(socket) => sockets.push(socket),
            Err(error) => fault = Some(error.to_string()),
        }
    }
    (number, sockets, fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn places_are_addresses_or_names_with_a_port() {
        for text in ["127.0.0.1:3260", "[::1]:0", "storage.example:3260", "localhost:10809"] {
            assert_eq!(text.parse::<HostPort>().map(|place| place.to_string()).as_deref(), Ok(text));
        }
        for wrong in
            ["127.0.0.1", "::1:3260:", "host:", "host:70000", ":3260", "a b:1", "300.1.1.1:3260", "-x:1"]
        {
            assert!(wrong.parse::<HostPort>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_place_that_is_taken_is_listened_on_as_soon_as_it_is_free() {
        runtime().block_on(async {
            let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let taken = other.local_addr().unwrap();
            let places = vec![taken.into(), "127.0.0.1:0".parse().unwrap()];
            let mut listener = Listener::bind("test", places, || Ok(())).await;
            let listening = listener.listening();
            let [free] = listening.addresses()[..] else { panic!("{listening:?}") };
            assert!(listening.waiting()[0].starts_with(&taken.to_string()), "{listening:?}");
            // The other one is served meanwhile.
            let (_client, (_, peer)) = tokio::join!(TcpStream::connect(free), listener.accept());
            assert!(peer.ip().is_loopback());
            drop(other);
            let client = async {
                while !listening.waiting().is_empty() {
                    tokio::task::yield_now().await;
                }
                TcpStream::connect(taken).await.unwrap()
            };
            let (_client, _) = tokio::join!(client, listener.accept());
            assert_eq!(listening.addresses(), [taken, free]);
        });
    }

    #[test]
    fn nobody_is_let_in_before_what_clients_need_is_there() {
        runtime().block_on(async {
            let (sender, receiver) = std::sync::mpsc::channel();
            let receiver = Mutex::new(receiver);
            let load = move || match receiver.lock().unwrap().try_recv() {
                Ok(found) => Ok(found),
                Err(_) => Err("the key is not there".to_owned()),
            };
            let mut listener = Listener::bind("test", vec!["127.0.0.1:0".parse().unwrap()], load).await;
            let listening = listener.listening();
            assert_eq!(listening.waiting(), ["the key is not there"]);
            assert!(listening.addresses().is_empty());
            sender.send(7).unwrap();
            assert_eq!(listener.loaded().await, 7);
            let client = async {
                while listening.addresses().is_empty() {
                    tokio::task::yield_now().await;
                }
                TcpStream::connect(listening.addresses()[0]).await.unwrap()
            };
            let (_client, _) = tokio::join!(client, listener.accept());
            assert!(listening.waiting().is_empty());
        });
    }
}
