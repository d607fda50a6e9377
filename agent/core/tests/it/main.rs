//! Tests over more than one module: the oracle against the compiled maps, the kernel's scanner against the parser, objects
//! against what follows from them.

mod cases;
mod cluster;
mod cyclonus;
mod objects;
mod oracle;
mod roster;
mod scanner;
mod steps;
mod support;
mod tables;
