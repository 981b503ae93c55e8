//! Nothing: the module of redis-cell is what is built.
