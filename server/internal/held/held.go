// Package held keeps one read of a connection pending while input comes and is answered: Go's
// poller tells of input, so a request is read with one system call. An ordinary read begins with
// one that finds nothing.
//
// Closing a connection waits for its held read. So what is done during one has to end soon, and
// a connection that others may close at any moment is read in the ordinary way.
package held

import "time"

// Probe is how long after input a held read has to be interrupted, by a deadline, and begun anew.
// The poller tells only once of an end that arrived together with the last request, and a read
// that got less than there was room for looks like the last one.
const Probe = 2 * time.Second
