//! The dashboard of a daemon that another one takes over from.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::daemons::Place;

fn get(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn address(place: &Place, more: &[&str]) -> String {
    let told = place.print(&[&["dashboard", "--json"], more].concat());
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    told["addresses"][0].as_str().unwrap().to_owned()
}

#[test]
fn the_page_is_at_the_same_address_after_an_upgrade() {
    let mut place = Place::start(&["--cachefile", "none"]);
    let before = address(&place, &["--listen", "127.0.0.1:0"]);
    assert!(get(&before).starts_with("HTTP/1.1 200"));
    place.replace();
    assert!(get(&before).starts_with("HTTP/1.1 200"));
    assert_eq!(address(&place, &[]), before);
}
