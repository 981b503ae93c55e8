package store

import (
	"context"
	"time"
)

// ReadPasswordEvery replaces the interval at which the password is read again. It has to
// be called before the first connection.
func (s *Store) ReadPasswordEvery(d time.Duration) { s.credential.interval = d }

// ReadPassword reads the password from its source.
func (s *Store) ReadPassword(ctx context.Context) (string, error) { return s.credential.read(ctx) }

// Password returns the password of the next connection.
func (s *Store) Password() string { return s.credential.current() }
