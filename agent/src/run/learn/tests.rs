//! Records in, effects and knowledge out.
