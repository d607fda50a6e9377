//! Rows from counts and knowledge.
