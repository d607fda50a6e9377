#![no_std]
//! (placeholder)
