//! Loading and unloading encryption keys, by encryption root.
