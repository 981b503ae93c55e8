package dashboard

// Remembered returns how many kinds of requests are remembered, and the size of their
// names.
func Remembered(u *Unmatched) (n, bytes int) {
	for names := range u.seen {
		bytes += len(names.domain) + len(names.keys)
	}
	return len(u.seen), bytes
}
