//! End-to-end tests: the built klet beside a real containerd, driven as a user
//! would drive it. One file in `tests/` per capability; `testkit` holds what
//! they stand on.
