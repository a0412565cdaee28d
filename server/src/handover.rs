//! Upgrade in place: a daemon that runs hands everything over to one that takes over.
//!
//! # The idea
//! The new daemon ([`crate::takeover`]) connects to a socket of its own kind beside the API's
//! ([`FILE_NAME`]), and says what it is. The old one then brings all clients to a *boundary*, closes its
//! pools, and gives what it has as descriptors and facts: its listening sockets, the sockets of its clients
//! with what each protocol agreed on, how each pool was open, and the keys that are loaded. The new one opens
//! the pools, and says that it has them; that one word makes it the owner. Then it goes on with the clients
//! where the old one stopped. Clients notice a pause.
//!
//! | step | the old daemon | the new one |
//! |---|---|---|
//! | 1 | | connects; says the form of the hand-over that it knows |
//! | 2 | refuses what cannot be handed over, by name; nothing has happened yet | |
//! | 3 | holds new requests back, commits what was written, within a limit | waits |
//! | 4 | closes the gate ([`crate::gate`]): no client is accepted, no request is read; what is under way is finished and answered | waits |
//! | 5 | stops answering mounts, whose requests wait in the kernel; closes the pools, which commits the rest and gives their devices free | waits |
//! | 6 | gives all of it | opens the pools, loads keys |
//! | 7 | | says that it took over; opens its own gate, and answers mounts |
//! | 8 | ends | serves |
//!
//! # Who owns the pools
//! The old daemon until step 5, no process in 6, the new one from 7 on. Two never do: devices of pools are
//! locked by the process that has them open. Whatever goes wrong before step 7 (a refusal, a time limit, the
//! death of the new daemon), the old one opens again what it closed, and goes on with its clients: it kept a
//! copy of each descriptor, and it read nothing meanwhile. Nor did the new one, which reads from no client
//! before step 7. What was acknowledged to clients is in the pool since step 5. Should both die, it is as
//! after a crash.
//!
//! The old daemon waits for the new one as long as that lives, because a large pool may take long to open.
//!
//! # Boundaries
//! A connection of a client is a [`Guest`](crate::gate::Guest) of the gate. When the gate closes, its
//! protocol takes no further request, finishes those that it has begun, and *parks*: it hands in its socket
//! with what the protocol needs ([`Parked`](crate::gate::Parked)), and waits. If it is to go on itself,
//! nothing has happened. Otherwise it drops what it has, and another task, here or in the new daemon, begins
//! with what was handed in. Bytes that were read from the socket, but are no whole request, and answers that
//! did not leave yet, go along.
//!
//! | client | what it sees |
//! |---|---|
//! | NBD, Unix or TCP | a pause |
//! | NBD with TLS | the end of the connection: the state of the session cannot be taken out of it |
//! | one that has not chosen an export yet | it is waited for, not for long; then the end of the connection |
//! | iSCSI | a pause |
//! | vhost-user | the end of the connection; virtual machines connect again, with their requests in flight |
//! | API, one answer | an answer before the pause, or "ask again", which the commands do |
//! | API, answers that last (streams, events) | their end |
//! | dashboard | the end of its session: users sign in again, at the same address |
//! | mounted filesystems | a pause: their sessions with the kernel go over |
//! | those whose sessions cannot go over | mounted anew; those that are in use refuse the hand-over |
//! | block devices of this machine | removed and made anew; those that are in use refuse the hand-over |
//!
//! # What is secret
//! Only processes of the daemon's user and root are answered (the kernel names the peer). Keys travel in
//! frames of this socket only, and the memory of both sides is wiped.
//!
//! | module | what it owns |
//! |---|---|
//! | `frames` | messages with descriptors, over a Unix socket |
//! | `message` | what the two daemons say |

mod frames;
mod message;

pub use frames::{Channel, Frame};
pub use message::{FORM, Manager, Message, MountTold, OpenedAs, ToldHandle, Unshared};

/// The name of the socket for a daemon that takes over, beside the API's.
pub const FILE_NAME: &str = "hand-over.sock";
