package memengine

import "github.com/weirlimit/weir/internal/acts"

// refusedPart is the part of the memory of IDs that is for refused takes and for ends of unknown
// ones. They have no more, so none of them displaces a granted take, and no less.
const refusedPart = 4

// sweepNew and sweepFull are how many ids of a shard are looked at when one is
// added: always, and when there is no room.
const sweepNew, sweepFull = 2, 128

// An ids has the records of IDs in one shard.
type ids struct {
	// kept are the records of granted takes, of those that were amended, and of attempts that
	// were withdrawn.
	kept map[recordName]*record
	// refused are the records of refused takes and of early ends, of the last seconds and of
	// those before. They go all at once, so that nothing has to look for them.
	refused [2]refusals
	since   int64 // when the last seconds began
}

type refusals struct {
	records map[recordName]*record
	bytes   int64
}

// records returns the shard's records.
func (sh *shard) records() *ids {
	if sh.ids == nil {
		sh.ids = new(ids)
	}
	return sh.ids
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

// refuse keeps a record among the refused ones for some seconds, if there is room.
func (i *ids) refuse(s *Store, name recordName, r *record, now int64) {
	i.turn(s, now)
	i.remove(s, name)
	g := &i.refused[0]
	r.counted = r.bytes()
	if s.refused.Add(r.counted) > s.maxIDBytes/refusedPart {
		s.refused.Add(-r.counted)
		return
	}
	if g.records == nil {
		g.records = make(map[recordName]*record)
	}
	g.records[name] = r
	g.bytes += r.counted
}

// keep keeps a record if there is room for it. One that replaces another has room.
func (i *ids) keep(s *Store, name recordName, r *record, now int64) {
	if i.kept == nil {
		i.kept = make(map[recordName]*record)
	}
	most, replaces := s.maxIDBytes-s.maxIDBytes/refusedPart, i.kept[name] != nil
	i.remove(s, name)
	r.counted = r.bytes()
	i.sweep(s, sweepNew, now)
	if s.ids.Load()+r.counted > most {
		i.sweep(s, sweepFull, now)
	}
	if replaces || s.ids.Load()+r.counted <= most {
		i.kept[name] = r
		s.ids.Add(r.counted)
	}
}

// remove forgets an ID.
func (i *ids) remove(s *Store, name recordName) {
	if r := i.kept[name]; r != nil {
		i.drop(s, name, r)
	}
	for g := range i.refused {
		if r := i.refused[g].records[name]; r != nil {
			delete(i.refused[g].records, name)
			i.refused[g].bytes -= r.counted
			s.refused.Add(-r.counted)
		}
	}
}

func (i *ids) drop(s *Store, name recordName, r *record) {
	delete(i.kept, name)
	s.ids.Add(-r.counted)
}

// resized counts what a record has grown or shrunk by.
func (i *ids) resized(s *Store, name recordName, r *record) {
	more := r.bytes() - r.counted
	r.counted += more
	if i.kept[name] == r {
		s.ids.Add(more)
		return
	}
	for g := range i.refused {
		if i.refused[g].records[name] == r {
			i.refused[g].bytes += more
			s.refused.Add(more)
		}
	}
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
