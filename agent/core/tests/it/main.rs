//! Tests over more than one module: the oracle against the compiled maps, the kernel's scanner against the parser.

mod cases;
mod cluster;
mod cyclonus;
mod oracle;
mod roster;
mod scanner;
mod support;
mod tables;
