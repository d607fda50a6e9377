//! Tests over more than one module: the oracle against the compiled maps, the kernel's scanner against the parser.

mod cases;
mod oracle;
mod scanner;
mod support;
