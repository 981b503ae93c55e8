package memstore

import "github.com/weirlimit/weir/internal/acts"

// refusedPart is the part of the memory of IDs that is for refused takes. They have no
// more, so a refused take never displaces a granted one, and no less.
const refusedPart = 4

// sweepNew and sweepFull are how many ids of a shard are looked at when one is
// added: always, and when there is no room.
const sweepNew, sweepFull = 2, 128

// An ids has the records of IDs in one shard.
type ids struct {
	// kept are the records of granted takes, and of those that were amended.
	kept map[recordName]*record
	// refused are the records of refused takes, of the last seconds and of those
	// before. They go all at once, so that nothing has to look for them.
	refused [2]refusals
	since   int64 // when the last seconds began
}

type refusals struct {
	records map[recordName]*record
	bytes   int64
}

// find returns the record of an ID, or nil.
func (i *ids) find(s *Store, name recordName, now int64) *record {
	if i == nil {
		return nil
	}
	if r := i.kept[name]; r != nil && int64(r.until)*1_000_000 > now {
		return r
	}
	i.turn(s, now)
	for g := range i.refused {
		if r := i.refused[g].records[name]; r != nil {
			return r
		}
	}
	return nil
}

// turn forgets the refusals whose time is over.
func (i *ids) turn(s *Store, now int64) {
	life := acts.RefusedIDLife.Microseconds()
	switch {
	case i.refused[0].records == nil && i.refused[1].records == nil, now < i.since:
		i.since = now
	case now >= i.since+2*life:
		s.refused.Add(-i.refused[0].bytes - i.refused[1].bytes)
		i.refused, i.since = [2]refusals{}, now
	case now >= i.since+life:
		s.refused.Add(-i.refused[1].bytes)
		i.refused, i.since = [2]refusals{1: i.refused[0]}, now
	}
}

// refuse keeps the record of a refused take for some seconds, if there is room.
func (i *ids) refuse(s *Store, name recordName, r *record, now int64) {
	i.turn(s, now)
	g := &i.refused[0]
	if s.refused.Add(r.bytes()) > s.maxIDBytes/refusedPart {
		s.refused.Add(-r.bytes())
		return
	}
	if g.records == nil {
		g.records = make(map[recordName]*record)
	}
	g.records[name] = r
	g.bytes += r.bytes()
}

// add keeps a record if there is room for it.
func (i *ids) add(s *Store, name recordName, r *record, now int64) {
	if i.kept == nil {
		i.kept = make(map[recordName]*record)
	}
	if old := i.kept[name]; old != nil {
		i.drop(s, name, old)
	}
	most := s.maxIDBytes - s.maxIDBytes/refusedPart
	i.sweep(s, sweepNew, now)
	if s.ids.Load()+r.bytes() > most {
		i.sweep(s, sweepFull, now)
	}
	if s.ids.Load()+r.bytes() <= most {
		i.kept[name] = r
		s.ids.Add(r.bytes())
	}
}

// forget forgets an ID.
func (i *ids) forget(s *Store, name recordName) {
	if r := i.kept[name]; r != nil {
		i.drop(s, name, r)
	}
	for g := range i.refused {
		if r := i.refused[g].records[name]; r != nil {
			delete(i.refused[g].records, name) // its bytes go with the others
		}
	}
}

func (i *ids) drop(s *Store, name recordName, r *record) {
	delete(i.kept, name)
	s.ids.Add(-r.bytes())
}

// sweep forgets those of some ids that have had their time.
func (i *ids) sweep(s *Store, most int, now int64) {
	looked := 0
	for name, r := range i.kept {
		if looked++; looked > most {
			break
		}
		if int64(r.until)*1_000_000 <= now {
			i.drop(s, name, r)
		}
	}
}

// grew counts bytes that a record has grown by.
func (i *ids) grew(s *Store, name recordName, bytes int64) {
	if i.kept[name] != nil {
		s.ids.Add(bytes)
	}
}
