package ledger

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// A memory book is in the process. It is what record.lua and claim.lua do, without IDs: nothing
// that is recorded in memory is recorded again.
type memory struct {
	fields  int // that a month may have
	mu      sync.Mutex
	months  map[string]*sums
	windows map[string]*sums
	outbox  map[string]string
	due     map[string]int64 // in seconds since 1970
}

// sums are the fields of a month or a window until it expires.
type sums struct {
	of      map[string]int64
	expires int64
}

func newMemory() *memory {
	return &memory{fields: maxFields, months: map[string]*sums{}, windows: map[string]*sums{}, outbox: map[string]string{}, due: map[string]int64{}}
}

// find returns the sums of a name, and removes others that have expired when it adds some.
func find(in map[string]*sums, name string, expires int64) *sums {
	if in[name] == nil {
		now := time.Now().Unix()
		for other, s := range in {
			if s.expires <= now {
				delete(in, other)
			}
		}
		in[name] = &sums{of: map[string]int64{}}
	}
	in[name].expires = expires
	return in[name]
}

// epoch returns none: the process ends with the book.
func (m *memory) epoch(context.Context) (string, error) { return "", nil }

func (m *memory) record(_ context.Context, _ string, all []*record) (left []*record, alerts int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range all {
		alerts += m.one(r)
	}
	return nil, alerts, nil
}

func (m *memory) one(r *record) (alerts int) {
	if r.id != "" {
		month, row := find(m.months, r.month, r.ends), r.row
		sums := 0
		for i, n := range r.used.all() {
			if i == 0 || *n != 0 {
				sums++
			}
		}
		if _, known := month.of[numbers[0]+" "+row]; !known && len(month.of)+sums > m.fields {
			row = otherRow
		}
		for i, n := range r.used.all() {
			if i == 0 || *n != 0 {
				month.of[numbers[i]+" "+row] += *n
			}
		}
	}
	for i := range r.charges {
		c := &r.charges[i]
		window := find(m.windows, c.window, c.expires)
		window.of[c.key] += c.units
		used := window.of[c.key]
		for _, at := range c.levels {
			mark := c.key + " " + at.name
			if used < at.units || window.of[mark] > 0 {
				continue
			}
			window.of[mark] = 1
			id, now := c.window+" "+mark, time.Now().Unix()
			m.outbox[id] = strconv.FormatInt(now, 10) + " " + strconv.FormatInt(used, 10) + " " + at.name + " " + c.about
			m.due[id] = now
			alerts++
		}
	}
	return alerts
}

func (m *memory) claim(_ context.Context, d time.Duration) (*alert, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, first := time.Now(), ""
	for id, due := range m.due {
		if due <= now.Unix() && (first == "" || due < m.due[first] || due == m.due[first] && id < first) {
			first = id
		}
	}
	if first == "" {
		return nil, nil
	}
	m.due[first] = now.Add(d).Unix()
	return readAlert(first, m.outbox[first], now), nil
}

func (m *memory) remove(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.due, id)
	delete(m.outbox, id)
	return nil
}

func (m *memory) used(_ context.Context, charges []Charge) ([]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := make([]int64, len(charges))
	for i := range charges {
		if w := m.windows[charges[i].Window.name()]; w != nil {
			used[i] = w.of[charges[i].Key]
		}
	}
	return used, nil
}

func (m *memory) month(_ context.Context, name string) (map[string]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]int64{}
	if month := m.months[name]; month != nil {
		for field, n := range month.of {
			all[field] = n
		}
	}
	return all, nil
}
