//! Benchmarks of the codecs, and the counts of their instructions. The benchmarks are targets of this package, so that
//! none of them waits for the gateway to be built; those that need all of it are targets of the gateway's own package.
