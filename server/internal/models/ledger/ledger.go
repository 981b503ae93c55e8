// Package ledger records what requests to language models have used in the end: once for each
// request, in sums by person, team and model for each month, and in the windows of limits, whose
// alerts it delivers to a webhook. It is off the path of requests: a settlement waits in memory
// until it is written.
package ledger

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/deadline"
	"github.com/weirlimit/weir/internal/logs"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/models/journal"
)

const (
	// maxWaiting is how many settlements wait at most to be written, and maxBatch how many are
	// written together.
	maxWaiting = 100_000
	maxBatch   = 512
	// gather is how long a settlement waits for others, and pause how long all wait after one could
	// not be written.
	gather        = 20 * time.Millisecond
	pause         = time.Second
	defaultPrefix = "weir:"
	// callTime bounds one call of the store.
	callTime = 2 * time.Second
	// keepIDs is how long an ID is known, keepMonths how long the sums of a month are kept after its
	// end, and keepWindows those of a window.
	keepIDs     = 48 * time.Hour
	keepMonths  = 100 * 24 * time.Hour
	keepWindows = 48 * time.Hour
	// refusedAgain is after how long a limit that goes on refusing is looked at again, and
	// maxRefusing how many keys that refuse are remembered.
	refusedAgain = 10 * time.Second
	maxRefusing  = 10_000
	minWindow    = 24 * time.Hour
)

// Options configure a [Ledger]. The zero value is a ledger in memory without a webhook.
type Options struct {
	// Client reaches the Redis that the instances share. The caller closes it after Stop. Nil: the
	// ledger is in memory, and ends with the process.
	Client redis.UniversalClient
	// Prefix begins the names of the keys in Redis; no braces. Empty: weir:.
	Prefix string
	// Domain is the domain of the rules. Each has a ledger of its own.
	Domain string
	// Taker decides acts on the same Redis. A store that came back empty gets its limits charged again
	// by it. Nil: only the ledger.
	Taker weir.Taker
	// Zone is where months begin. Nil: UTC.
	Zone *time.Location
	// Webhook gets the alerts. Empty: none are recorded.
	Webhook string
	// Secret signs the requests to the webhook, see [ParseSecret]. Nil: they are not signed.
	Secret []byte
	// Journal gets a line for each settlement, and first one for each request that is held. The caller
	// stops it after the ledger. Nil: there is none.
	Journal *journal.Journal
	// Observer counts. Nil: nothing is counted.
	Observer Observer
	// Logger gets warnings, at most one a minute, and a line for each alert that is dropped. Nil:
	// nothing is logged.
	Logger *slog.Logger
}

// An Observer counts what a ledger does. It must be safe for concurrent use.
type Observer interface {
	// Lost counts a settlement that is not written because too many wait.
	Lost()
	// Delivered counts an alert that the webhook accepted, and Failed an attempt that it did not
	// accept.
	Delivered()
	Failed()
	// Dropped counts an alert that was not accepted for 24 hours.
	Dropped()
}

type nobody struct{}

func (nobody) Lost()      {}
func (nobody) Delivered() {}
func (nobody) Failed()    {}
func (nobody) Dropped()   {}

// A Settlement is what one request has used.
type Settlement struct {
	// ID is the request's. It is counted once.
	ID string
	// At is when the request was held, by the clock of the store: its month and its windows are
	// those of that instant.
	At time.Time
	// User, Team and Model are whom and what it is counted for.
	User, Team, Model string
	// Used has what it used.
	Used Numbers
	// Labels are what is known of the caller, and Price is the row of the price table; nil: none.
	// They are for the journal, as are Written, the part of the input that was written to a cache, and
	// HeldUSD, what the request held of dollars.
	Labels           map[string]string
	Price            *config.Model
	Written, HeldUSD int64
	// Charges are what it was charged in the windows of limits.
	Charges []Charge
}

// Numbers are what requests have used. Dollars are in millionths.
type Numbers struct {
	Requests, Input, Cached, Output, USD int64
	// Refused are requests that a limit refused. They have used nothing.
	Refused int64
	// Unsettled is what limits count beyond USD, because they never learned what a request used.
	Unsettled int64
}

// numbers are the names of the numbers, in the order of [Numbers.all].
var numbers = [...]string{"requests", "input", "cached", "output", "usd", "refused", "unsettled"}

func (n *Numbers) all() [len(numbers)]*int64 {
	return [...]*int64{&n.Requests, &n.Input, &n.Cached, &n.Output, &n.USD, &n.Refused, &n.Unsettled}
}

// A Charge is what one request is charged in the window of a limit.
type Charge struct {
	Key    string
	Window Window
	// Limit is what is charged, and HashTag its hash tag, for a store that came back empty. Nil: the
	// limit is not charged again.
	Limit   *weir.Limit
	HashTag string
	Units   int64
	// Count is the amount in force, and Alerts are the percents of it at which an alert is due.
	Count  int64
	Alerts []int
	About  About
}

// About is what an alert says of its limit.
type About struct {
	Name       string `json:"name"`
	Descriptor string `json:"descriptor"` // such as user=ann
	Meter      string `json:"meter"`
	Period     string `json:"period"` // such as month
	Ends       int64  `json:"ends"`   // when all is free again, in seconds since 1970
}

// A Window is the time from a start to an end, in microseconds since 1970.
type Window struct{ Start, End int64 }

// WindowOf returns the window of a limit around an instant; false if the ledger does not count the
// limit, because it has no windows of a day or longer that all keys share.
func WindowOf(l *weir.Limit, at time.Time) (Window, bool) {
	if l.Algorithm != weir.FixedWindow || l.Anchor != weir.AnchorEpoch || l.ChargeRefused || l.Period < minWindow {
		return Window{}, false
	}
	now := at.UnixMicro()
	r := l.RuleAt(now)
	if r.Calendar {
		return Window{r.Starts[1], r.Starts[2]}, true
	}
	start := now - now%r.Period
	return Window{start, start + r.Period}, true
}

// name names the window in the store.
func (w Window) name() string {
	return strconv.FormatInt(w.Start, 10) + "-" + strconv.FormatInt(w.End, 10)
}

// A Ledger is safe for concurrent use. Create it with New, then call Start.
type Ledger struct {
	Options
	book     book
	seldom   logs.Seldom
	wake     chan struct{} // a settlement waits
	alerted  chan struct{} // an alert was recorded
	stop     chan struct{} // closed by Stop
	stopping sync.Once
	lost     atomic.Int64
	running  sync.WaitGroup
	instance string

	// Only one goroutine at a time uses these: first the one that recovers, then the one that writes.
	// They are the epoch in which the ledger records, empty at first; the epochs that the store has had;
	// what this instance has recorded; what it is restoring; and limits by their text.
	epoch     string
	known     map[string]bool
	own       own
	restoring *restoration
	limits    map[string]*weir.Limit
	recalled  chan struct{} // closed once own has what an earlier process has recorded

	mu       sync.Mutex // guards the fields below; never held while waiting
	waiting  []*record
	batch    int                  // how many are written together; less after a failure
	refusing map[string]time.Time // when to look again at the windows of keys that refuse
	refused  map[refusedRow]*Settlement
	// unmarked says that the journal has lines that no mark follows, and behind that the ledger will
	// lack some of them, so that the next process looks for them. recovering says that it still may
	// lack what an earlier process has written.
	unmarked, behind, recovering bool
}

// New returns a ledger that starts nothing. The error is a [*weir.InvalidError].
func New(o Options) (*Ledger, error) {
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if u, err := url.Parse(o.Webhook); o.Webhook != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		// The URL may be a secret.
		return nil, &weir.InvalidError{Field: "alert webhook", Value: "no URL", Want: "http://HOST or https://HOST, and a path"}
	}
	l := &Ledger{
		Options: o, batch: maxBatch, book: newMemory(), seldom: logs.Seldom{Period: time.Minute}, refusing: map[string]time.Time{}, refused: map[refusedRow]*Settlement{},
		instance: rand.Text(), own: newOwn(), known: map[string]bool{}, limits: map[string]*weir.Limit{}, recalled: make(chan struct{}),
		wake: make(chan struct{}, 1), alerted: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	if o.Client != nil {
		l.book = &shared{client: o.Client, tag: cmp.Or(o.Prefix, defaultPrefix) + "{ledger/" + url.PathEscape(o.Domain) + "}:", fields: maxFields}
	}
	return l, nil
}

// Start starts to write settlements and to deliver alerts. Call it once.
func (l *Ledger) Start() {
	if l.Journal != nil {
		l.recovering = true
		l.running.Go(l.recover)
	} else {
		close(l.recalled)
	}
	l.running.Go(l.write)
	if l.Webhook != "" {
		l.running.Go(l.deliver)
	}
}

// Stop writes what waits and ends. When ctx ends first, the error says so, and the rest is lost.
// Further calls do the same.
func (l *Ledger) Stop(ctx context.Context) error {
	l.stopping.Do(func() { close(l.stop) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.running.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.gatherRefused()
	for l.Waiting() > 0 {
		if err := l.flush(ctx); err != nil && deadline.Sleep(ctx, gather) != nil {
			return err
		}
	}
	l.mark()
	return nil
}

// Waiting returns how many settlements wait to be written.
func (l *Ledger) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// Lost returns how many settlements were not written because too many waited.
func (l *Ledger) Lost() int64 { return l.lost.Load() }

// Settled has what a request used recorded. It never waits for the store.
func (l *Ledger) Settled(s *Settlement) { l.enter(eventSettled, s) }

// enter has a settlement recorded, and its line written to the journal.
func (l *Ledger) enter(event string, s *Settlement) {
	r := l.recordOf(s)
	if l.Journal != nil {
		r.line = l.entryOf(event, s).line()
	}
	l.add(r)
}

// Refused notes that a key's limit refused a cost: if it would have done so for what is settled
// alone, without any hold, the alert at 100 % is due.
func (l *Ledger) Refused(c Charge, cost int64) {
	at, due := l.exhausted(&c, cost)
	if !due {
		return
	}
	c.Units = 0
	r := &record{charges: []counted{l.counted(&c)}}
	r.charges[0].levels = []level{at}
	l.add(r)
}

// exhausted returns the level at which a limit is exhausted that has no room for a cost, and
// whether to look for it now.
func (l *Ledger) exhausted(c *Charge, cost int64) (level, bool) {
	if l.Webhook == "" || c.Count <= 0 || cost > c.Count || len(c.Alerts) == 0 || c.Alerts[len(c.Alerts)-1] != 100 {
		return level{}, false
	}
	name, now := c.Window.name()+" "+c.Key, time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.refusing[name]) {
		return level{}, false
	}
	if len(l.refusing) >= maxRefusing {
		for other, until := range l.refusing {
			if !now.Before(until) {
				delete(l.refusing, other)
			}
		}
		if len(l.refusing) >= maxRefusing {
			return level{}, false
		}
	}
	l.refusing[name] = now.Add(refusedAgain)
	return level{levelName(100, c.Count), c.Count - cost + 1}, true
}

func (l *Ledger) add(r *record) {
	l.mu.Lock()
	full := len(l.waiting) >= maxWaiting
	if !full {
		l.waiting = append(l.waiting, r)
	}
	if r.line != nil {
		l.Journal.Append(r.line)
		r.line = nil
		l.unmarked, l.behind = true, l.behind || full
	}
	l.mu.Unlock()
	switch {
	case !full:
		notify(l.wake)
	case r.id != "":
		l.lost.Add(1)
		l.Observer.Lost()
		l.warn("the ledger lacks a settlement, because too many wait to be written")
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// warn logs a warning, at most one a minute.
func (l *Ledger) warn(message string, attrs ...any) {
	if _, due := l.seldom.Due(); due {
		l.Logger.Warn(message, attrs...)
	}
}

// sleep waits, and reports false if the ledger stops.
func (l *Ledger) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.stop:
		return false
	case <-timer.C:
		return true
	}
}

// write writes settlements until the ledger stops.
func (l *Ledger) write() {
	select {
	case <-l.stop:
		return
	case <-l.recalled:
	}
	poll := time.NewTicker(pollTime)
	defer poll.Stop()
	refused := time.NewTicker(refusedTime)
	defer refused.Stop()
	for due := false; ; {
		select {
		case <-l.stop:
			return
		case <-poll.C:
			if err := l.follow(context.Background()); err != nil {
				l.warn("the ledger does not know whether the store has lost its data", "error", err)
			}
			continue
		case <-refused.C:
			l.gatherRefused()
			due = true
		case <-l.wake:
		}
		if !l.sleep(gather) {
			return
		}
		for l.Waiting() > 0 {
			if err := l.flush(context.Background()); err != nil {
				l.warn("settlements wait until the store can record them", "waiting", l.Waiting(), "error", err)
				if !l.sleep(pause) {
					return
				}
			}
		}
		due = due && !l.mark()
	}
}

// flush writes the settlements that wait longest. Those that failed wait on: their IDs keep them
// from counting twice.
func (l *Ledger) flush(ctx context.Context) error {
	if l.epoch == "" {
		if err := l.follow(ctx); err != nil {
			return err
		}
	}
	l.mu.Lock()
	batch := append([]*record(nil), l.waiting[:min(len(l.waiting), l.batch)]...)
	l.mu.Unlock()
	calling, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	left, alerts, err := l.book.record(calling, l.epoch, batch)
	l.confirmed(batch, left)
	if errors.Is(err, errEpoch) {
		err = l.follow(ctx)
	}
	l.mu.Lock()
	rest := l.waiting[len(batch):]
	l.waiting = make([]*record, 0, len(left)+len(rest))
	l.waiting = append(append(l.waiting, left...), rest...)
	// A connection that breaks takes all replies of its batch with it, and a slow store may not
	// answer a large one in time: smaller ones get on.
	if l.batch = min(2*l.batch, maxBatch); err != nil {
		l.batch = max(1, l.batch/8)
	}
	l.mu.Unlock()
	if alerts > 0 {
		notify(l.alerted)
	}
	return err
}

// Used returns what is settled of each charge's key in its window.
func (l *Ledger) Used(ctx context.Context, charges []Charge) ([]int64, error) {
	return l.book.used(ctx, charges)
}

// A book is where a ledger's sums and alerts are. It is safe for concurrent use.
type book interface {
	// epoch returns the epoch of the store; empty: it cannot lose its data.
	epoch(ctx context.Context) (string, error)
	// record records settlements in an epoch, each once, and returns those that may not be recorded, with the
	// first error, and how many alerts were.
	record(ctx context.Context, epoch string, all []*record) (left []*record, alerts int, err error)
	// claim claims an alert that is due for so long; nil if there is none.
	claim(ctx context.Context, d time.Duration) (*alert, error)
	// remove removes an alert.
	remove(ctx context.Context, id string) error
	// used returns what is recorded of each charge's key in its window.
	used(ctx context.Context, charges []Charge) ([]int64, error)
	// month returns the sums of a month: the name of a number, a space and a row.
	month(ctx context.Context, name string) (map[string]int64, error)
}

// A record is a settlement as a book records it, or with an empty ID a look at a window.
type record struct {
	id      string
	month   string
	ends    int64 // when the month expires, in seconds since 1970
	row     string
	used    Numbers
	charges []counted
	line    []byte // of the journal; nil: none, or it waits there
}

// counted is a charge as a book counts it.
type counted struct {
	window  string
	expires int64 // in seconds since 1970
	key     string
	units   int64
	about   string
	levels  []level
	of      *Charge
}

// level is an alert that is due when so many units are used.
type level struct {
	name  string // percent, space, amount
	units int64
}

func levelName(percent int, count int64) string {
	return strconv.Itoa(percent) + " " + strconv.FormatInt(count, 10)
}

// otherRow is the row of a month that counts what there is no room for.
var otherRow = rowOf(otherName, otherName, otherName)

const otherName = "other"

func rowOf(user, team, model string) string {
	text, _ := json.Marshal([...]string{user, team, model}) // Texts are always JSON.
	return string(text)
}

// monthForm is the name of a month.
const monthForm = "2006-01"

func (l *Ledger) recordOf(s *Settlement) *record {
	at := s.At.In(l.Zone)
	next := time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, l.Zone)
	r := &record{id: s.ID, month: at.Format(monthForm), ends: next.Add(keepMonths).Unix(), row: rowOf(s.User, s.Team, s.Model), used: s.Used}
	for i := range s.Charges {
		r.charges = append(r.charges, l.counted(&s.Charges[i]))
	}
	return r
}

// counted returns a charge without alerts.
func (c *Charge) counted() counted {
	return counted{window: c.Window.name(), expires: c.Window.End/1e6 + int64(keepWindows/time.Second), key: c.Key, units: c.Units, of: c}
}

// counted returns a charge with the alerts that may be due.
func (l *Ledger) counted(c *Charge) counted {
	one := c.counted()
	if l.Webhook == "" || c.Count <= 0 || len(c.Alerts) == 0 {
		return one
	}
	c.About.Ends = c.Window.End / 1e6
	text, err := json.Marshal(c.About)
	if err != nil {
		panic(err) // It is made of texts and numbers.
	}
	one.about = string(text)
	for _, percent := range c.Alerts {
		one.levels = append(one.levels, level{levelName(percent, c.Count), (c.Count*int64(percent) + 99) / 100})
	}
	return one
}

var errMonth = errors.New("the ledger has a number that it cannot read")
