package ledger

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/models/journal"
)

// The events of a line of the journal, beside [journal.EventLost].
const (
	eventOpen      = "open"      // a request is held
	eventSettled   = "settled"   // it is settled
	eventDropped   = "dropped"   // it counts for nothing
	eventUnsettled = "unsettled" // its process ended before it was settled
	eventRefused   = "refused"   // requests that a limit refused
	eventRecorded  = "recorded"  // the ledger has what the lines before say
	eventEmptied   = "emptied"   // the store came back empty: it gets what the lines before say
)

// An entry is a line of the journal.
type entry struct {
	Time   time.Time         `json:"time"`
	Event  string            `json:"event"`
	ID     string            `json:"id,omitempty"`
	Domain string            `json:"domain,omitempty"`
	Epoch  string            `json:"epoch,omitempty"` // of the store
	Held   time.Time         `json:"held,omitzero"`   // by the clock of the store
	Month  string            `json:"month,omitempty"`
	User   string            `json:"user,omitempty"`
	Team   string            `json:"team,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Model  string            `json:"model,omitempty"`
	// HeldUSD is what an open request holds of dollars.
	HeldUSD string `json:"held_usd,omitempty"`
	*Amounts
	Price   *entryPrice   `json:"price,omitempty"`
	Charges []entryCharge `json:"charges,omitempty"`
	Lines   int64         `json:"lines,omitempty"` // that are missing
}

// Amounts are what a line of the journal has of the numbers of requests.
type Amounts struct {
	Requests  int64  `json:"requests"`
	Refused   int64  `json:"refused,omitempty"`
	Input     int64  `json:"input_tokens"`
	Cached    int64  `json:"cached_tokens"`
	Written   int64  `json:"cache_written_tokens,omitempty"` // a part of the input
	Output    int64  `json:"output_tokens"`
	USD       string `json:"usd"`
	Unsettled string `json:"unsettled_usd,omitempty"`
}

// entryPrice is the row of the price table, in dollars per million tokens.
type entryPrice struct {
	Row        string `json:"row"`
	Input      string `json:"input"`
	CacheRead  string `json:"cache_read"`
	CacheWrite string `json:"cache_write"`
	Output     string `json:"output"`
}

// entryCharge is what a request was charged in the window of a limit, whose text form is Limit.
type entryCharge struct {
	Key   string    `json:"key"`
	Tag   string    `json:"hash_tag,omitempty"`
	Limit string    `json:"limit,omitempty"`
	Count string    `json:"count"`
	Units int64     `json:"units"`
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
}

// usd reads an amount of an entry; empty is 0.
func usd(text string) (int64, bool) {
	if text == "" {
		return 0, true
	}
	bare, negative := strings.CutPrefix(text, "-")
	n, ok := config.ParseDollars(bare)
	if negative {
		n = -n
	}
	return n, ok
}

// numbers returns the numbers of an entry; false if they cannot be read.
func (e *entry) numbers() (n Numbers, ok bool) {
	if e.Amounts == nil {
		return n, false
	}
	n = Numbers{Requests: e.Requests, Input: e.Input, Cached: e.Cached, Output: e.Output, Refused: e.Refused}
	var read, alsoRead bool
	n.USD, read = usd(e.USD)
	n.Unsettled, alsoRead = usd(e.Unsettled)
	return n, read && alsoRead
}

// counts reports whether an entry has numbers for the ledger.
func (e *entry) counts() bool {
	return e.Event == eventSettled || e.Event == eventUnsettled || e.Event == eventRefused
}

// readEntry reads a line of the journal; nil if it cannot be read.
func readEntry(line []byte) *entry {
	e := new(entry)
	if json.Unmarshal(line, e) != nil || e.Event == "" {
		return nil
	}
	if _, ok := e.numbers(); e.counts() && !ok {
		return nil
	}
	return e
}

// entryOf returns the entry of a settlement.
func (l *Ledger) entryOf(event string, s *Settlement) *entry {
	e := &entry{
		Time: time.Now().UTC(), Event: event, ID: s.ID, Domain: l.Domain, Held: s.At.UTC(), Month: s.At.In(l.Zone).Format(monthForm),
		User: s.User, Team: s.Team, Labels: s.Labels, Model: s.Model,
	}
	if event == eventOpen {
		e.HeldUSD = config.DollarsText(s.HeldUSD)
		return e
	}
	if event == eventDropped {
		return e
	}
	n := &s.Used
	e.Amounts = &Amounts{Requests: n.Requests, Refused: n.Refused, Input: n.Input, Cached: n.Cached, Written: s.Written, Output: n.Output, USD: config.DollarsText(n.USD)}
	if n.Unsettled != 0 {
		e.Unsettled = config.DollarsText(n.Unsettled)
	}
	if p := s.Price; p != nil {
		e.Price = &entryPrice{p.Name.String(), config.DollarsText(p.Input), config.DollarsText(p.CacheRead), config.DollarsText(p.CacheWrite), config.DollarsText(p.Output)}
	}
	for i := range s.Charges {
		c := &s.Charges[i]
		one := entryCharge{c.Key, c.HashTag, "", c.About.Meter, c.Units, time.UnixMicro(c.Window.Start).UTC(), time.UnixMicro(c.Window.End).UTC()}
		if c.Limit != nil {
			one.Limit = c.Limit.String()
		}
		e.Charges = append(e.Charges, one)
	}
	return e
}

// settlementOf returns the settlement of an entry that counts.
func (l *Ledger) settlementOf(e *entry) *Settlement {
	s := &Settlement{ID: e.ID, At: e.Held, User: e.User, Team: e.Team, Model: e.Model}
	s.Used, _ = e.numbers()
	for _, c := range e.Charges {
		s.Charges = append(s.Charges, Charge{
			Key: c.Key, HashTag: c.Tag, Limit: l.limitOf(c.Limit), Units: c.Units, Window: Window{c.From.UnixMicro(), c.Until.UnixMicro()}, About: About{Meter: c.Count},
		})
	}
	return s
}

// line returns the line of an entry.
func (e *entry) line() []byte {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // It is made of texts and numbers.
	}
	return line
}

// Held has the journal note that a request is held. Settled or Dropped follows, unless the process
// ends before.
func (l *Ledger) Held(s *Settlement) {
	if l.Journal != nil {
		l.Journal.Append(l.entryOf(eventOpen, s).line())
	}
}

// Dropped has the journal note that a request that was held counts for nothing.
func (l *Ledger) Dropped(s *Settlement) {
	if l.Journal != nil {
		l.Journal.Append(l.entryOf(eventDropped, s).line())
	}
}

// markOf returns an entry about the store in an epoch.
func (l *Ledger) markOf(event, epoch string) *entry {
	return &entry{Time: time.Now().UTC(), Event: event, Domain: l.Domain, Epoch: epoch}
}

// mark notes in the journal that the ledger has all that the journal says. It reports false if that is
// not so now.
func (l *Ledger) mark() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.behind || l.recovering || len(l.waiting) > 0 || l.restoring != nil {
		return false
	}
	if l.unmarked {
		l.unmarked = l.Journal.Append(l.markOf(eventRecorded, l.epoch).line()) == 0
	}
	return true
}

// A Found is what journals have beside the rows of a month.
type Found struct {
	// Open are requests that were held and not settled yet, and OpenUSD what they hold.
	Open, OpenUSD int64
	// Missing are lines that were not written, because too many waited, and Unreadable lines those
	// that cannot be read. Their months are unknown.
	Missing, Unreadable int64
}

// ReadJournals calls add with the rows of a month, such as 2026-11, of a domain in the folders of
// journals, each once for each settlement.
func ReadJournals(dirs []string, domain, month string, add func(*Row)) (Found, error) {
	begin, err := time.Parse(monthForm, month)
	if err != nil {
		return Found{}, err
	}
	var found Found
	for _, dir := range dirs {
		open := map[string]int64{}
		// Somewhere the month begins a day earlier than in UTC.
		err := journal.Read(dir, begin.AddDate(0, 0, -1), func(line []byte) error {
			if len(line) == 0 {
				return nil // It follows a line that was not written to its end.
			}
			e := readEntry(line)
			switch {
			case e == nil:
				found.Unreadable++
			case e.Event == journal.EventLost:
				found.Missing += e.Lines
			case e.Domain != domain || e.Month != month:
			case e.Event == eventOpen:
				open[e.ID], _ = usd(e.HeldUSD)
			case e.counts():
				n, _ := e.numbers()
				add(&Row{User: e.User, Team: e.Team, Model: e.Model, Numbers: n})
				delete(open, e.ID)
			case e.Event == eventDropped:
				delete(open, e.ID)
			}
			return nil
		})
		if err != nil {
			return found, err
		}
		for _, held := range open {
			found.Open++
			found.OpenUSD += held
		}
	}
	return found, nil
}
