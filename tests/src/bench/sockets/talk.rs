//! A client process that waits for orders on standard input, a line each, and answers with a line of numbers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use egret_tests::exec::{Cmd, Place};

/// A running client; ends when dropped, since its input ends.
pub(super) struct Client {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Client {
    /// Starts it in a place and waits until it is ready.
    pub(super) fn start(place: &Place, cmd: &Cmd) -> Self {
        let (program, args) = cmd.argv.split_first().expect("a program");
        let mut command = Command::new(program);
        // What Egret prints goes to stderr, and only matters when the client does not come up.
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        place.enter(&mut command);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("start {:?}: {error}", cmd.argv));
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut client = Self { child, orders, answers };
        client.read();
        client
    }

    /// Gives an order and waits for the numbers.
    pub(super) fn ask(&mut self, order: &str) -> Vec<u64> {
        let orders = self.orders.as_mut().expect("open until dropped");
        writeln!(orders, "{order}").expect("the client takes orders");
        self.read()
    }

    fn read(&mut self) -> Vec<u64> {
        let mut line = String::new();
        let count = self.answers.read_line(&mut line).unwrap_or(0);
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        match numbers {
            Ok(numbers) if count > 0 && !numbers.is_empty() => numbers,
            _ => panic!("the client said {line:?}; stderr: {}", self.last_words()),
        }
    }

    fn last_words(&mut self) -> String {
        self.orders = None;
        let _ = self.child.wait();
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut text);
        }
        text
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.wait();
    }
}
