//! The pool: import, vdevs, zio, ARC, DMU, DSL, ZPL, volumes.
