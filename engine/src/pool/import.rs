//! Opening a pool: choose labels and uberblock, read the trusted config, refuse what must be refused.
