//! Tests over more than one module: the oracle against the compiled maps, the kernel's scanner against the parser, objects
//! against what follows from them.

mod cases;
mod objects;
mod oracle;
mod replays;
mod samples;
mod scanner;
mod steps;
mod support;
