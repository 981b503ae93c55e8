package storetest

import (
	"embed"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// texts are the cases that are text. Each begins with "== " and its name. Its lines are
//
//	for ALGORITHM…      run once for each; "units" stands for all that count units, "bookable"
//	                    for those whose charges can be booked ahead
//	limit [NAME] TEXT   a limit, see [weir.ParseLimit], of the algorithm that is run; without
//	                    a name it is every charge's
//	+DURATION…          advance the clock; "retry" and "reset" are those of the last decision
//	[N x] ACT [-> WANT] put an act to the Taker, once or N times
//	only ALGORITHM…: …  a line that is for some of the algorithms
//
// An ACT is one of
//
//	KIND CHARGES [id ID [new]] [scope OWNER] [attempt N] [hold D] [wait D] [now] [anonymous]
//	                            a scope asks for the cost of the first charge
//	KIND ID [COST [hold D]]     an act about the take of an ID, which has its charges
//	repeat ID           the take once more
//	amend ID OUTCOME…   the take as its caller knows it, put twice: words or amounts; for one
//	                    that was not made yet "amend take CHARGES id ID: OUTCOME…"
//	undo MARK COST [of LIMIT]   a refund of a decision
//
// and CHARGES are charges with commas between them, [KEY] COST[..UPTO] [of LIMIT] [keep N];
// "|" begins the next alternative, "&" the next group. A WANT has the decisions with
// semicolons between them, of words that are each compared:
//
//	granted [N]  refused  not-charged  not-evaluated
//	left N  retry D  reset D  delay D    D may be "never", or "some" for any positive time
//	exactly                              what is not named is zero
//	= MARK                               the same as the decision of that mark, which a first
//	                                     use sets
//
// or "speaks N", the place of the strictest charge; "remaining N", what the act says remains;
// "N granted", of so many times; "invalid FIELD", or the name of an error about an ID. Acts
// that are errors must change nothing.
//
//go:embed cases/*.txt
var texts embed.FS

// textCases returns the cases of all files.
func textCases() []testCase {
	var all []testCase
	files, err := texts.ReadDir("cases")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, file := range files {
		text, err := texts.ReadFile("cases/" + file.Name())
		if err != nil {
			panic(err)
		}
		for i, part := range strings.Split("\n"+string(text), "\n== ") {
			name, body, _ := strings.Cut(part, "\n")
			if i == 0 {
				continue // what stands before the first case
			}
			var lines []string
			for line := range strings.Lines(body) {
				line, _, _ = strings.Cut(line, "#")
				if line = strings.TrimSpace(line); line != "" {
					lines = append(lines, line)
				}
			}
			all = append(all, testCase{name, func(b *bench) { runText(b, lines) }})
		}
	}
	return all
}

// runText runs a case for each of its algorithms. Their keys do not meet.
func runText(b *bench, lines []string) {
	algorithms := []string{""}
	if words, found := strings.CutPrefix(lines[0], "for "); found {
		algorithms, lines = algorithmsOf(words), lines[1:]
	}
	for _, algorithm := range algorithms {
		s := &script{
			bench: b, algorithm: algorithm,
			limits: map[string]*weir.Limit{}, takes: map[string]*weir.Act{}, marks: map[string]mark{},
		}
		for _, line := range lines {
			s.at = strings.TrimSpace(algorithm + " " + line)
			s.line(line)
		}
	}
}

// algorithmsOf returns the names of the algorithms that words stand for.
func algorithmsOf(words string) (names []string) {
	for _, word := range strings.Fields(words) {
		found := false
		for i := range algo.Steps {
			step := &algo.Steps[i]
			if word == step.Name || word == "units" && !step.HoldsSlots || word == "bookable" && step.Books {
				names, found = append(names, step.Name), true
			}
		}
		if !found {
			panic("storetest: no algorithm is called " + word)
		}
	}
	return names
}

// A script runs one case for one algorithm.
type script struct {
	*bench
	algorithm string
	at        string // the line, for errors
	tagged    bool   // its charges have a hash tag, as those of alternatives must
	limits    map[string]*weir.Limit
	takes     map[string]*weir.Act // by ID
	marks     map[string]mark
	last      weir.Decision
}

// A mark is a decision that was given a name.
type mark struct {
	charge   weir.Charge
	decision weir.Decision
}

// mistake ends the test: the case itself is wrong.
func (s *script) mistake(what string) {
	s.Helper()
	s.Fatalf("%s: %s", s.at, what)
}

func (s *script) line(text string) {
	if rest, found := strings.CutPrefix(text, "only "); found {
		words, line, _ := strings.Cut(rest, ": ")
		if !slices.Contains(algorithmsOf(words), s.algorithm) {
			return
		}
		text = strings.TrimSpace(line)
	}
	asked, want, _ := strings.Cut(text, " -> ")
	words := strings.Fields(strings.ReplaceAll(asked, ",", " , "))
	switch {
	case words[0] == "tagged":
		s.tagged = true
	case words[0] == "limit":
		s.limit(words[1:])
	case words[0][0] == '+' || words[0][0] == '-':
		s.advance(words)
	case words[0][0] >= '0' && words[0][0] <= '9':
		s.several(s.number(words[0]), words[2:], want)
	default:
		a := s.act(words)
		if isFailure(want) {
			s.fails(a, want)
			return
		}
		s.put(words[0], a)
		s.want(a, want)
	}
}

func (s *script) limit(words []string) {
	name := ""
	if !strings.Contains(words[0], "/") {
		name, words = words[0], words[1:]
	}
	named := slices.ContainsFunc(algo.Steps[:], func(step algo.Step) bool { return slices.Contains(words, step.Name) })
	if !named && s.algorithm != "" {
		words = append(words, s.algorithm)
	}
	limit, err := weir.ParseLimit(strings.Join(words, " "))
	if err != nil {
		s.mistake(err.Error())
	}
	s.limits[name] = limit.MustCompile()
}

func (s *script) advance(words []string) {
	by := time.Duration(0)
	for _, word := range words {
		switch word {
		case "+retry":
			by += s.last.RetryAfter
		case "+reset":
			by += s.last.ResetAfter
		default:
			by += s.duration(word)
		}
	}
	s.clock.Advance(by)
}

func (s *script) duration(word string) time.Duration {
	if word == "never" {
		return weir.Never
	}
	if days, found := strings.CutSuffix(word, "d"); found {
		return time.Duration(s.number(days)) * 24 * time.Hour
	}
	d, err := time.ParseDuration(word)
	if err != nil {
		s.mistake(err.Error())
	}
	return d
}

func (s *script) number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		s.mistake(err.Error())
	}
	return n
}

// several puts an act n times, and counts the grants.
func (s *script) several(n int64, words []string, want string) {
	granted, pause := int64(0), time.Duration(0)
	if words[0][0] == '+' {
		pause, words = s.duration(words[0]), words[1:]
	}
	for range n {
		s.clock.Advance(pause)
		a := s.act(words)
		if s.put(words[0], a); a.Allowed() {
			granted++
		}
	}
	wanted, least := strings.CutPrefix(want, "at least ")
	wanted, _, found := strings.Cut(wanted, " ")
	if found && granted != s.number(wanted) && !(least && granted > s.number(wanted)) {
		s.Errorf("%s: %d granted", s.at, granted)
	}
}

// put puts an act to the Taker. One that amends is put twice, and must change nothing the second
// time. If the take was ended early, only the first answer says what is held.
func (s *script) put(verb string, a *weir.Act) {
	second := *a
	second.Decisions = slices.Clone(a.Decisions)
	if s.take(a); verb == "amend" {
		s.take(&second)
		if same := func(a, b weir.Decision) bool { return a.Remaining == b.Remaining }; !slices.EqualFunc(a.Decisions, second.Decisions, same) {
			s.Errorf("%s: amended again:\n%+v\n%+v", s.at, a.Decisions, second.Decisions)
		}
	}
	s.last = a.Decisions[0]
	if a.ID != "" && s.takes[a.ID] == nil {
		s.takes[a.ID] = a
	}
}

// kinds are the verbs that are kinds of acts.
var kinds = map[string]weir.Kind{
	"take": acts.KindTake, "refund": acts.KindRefund, "settle": acts.KindSettle, "release": acts.KindRelease,
	"renew": acts.KindRenew, "record": acts.KindRecord, "reset": acts.KindReset, "withdraw": acts.KindWithdraw,
}

// act reads an act.
func (s *script) act(words []string) *weir.Act {
	verb := words[0]
	switch take := s.takes[s.key(words[1])]; {
	case verb == "undo":
		m := s.marks[words[1]]
		a := about(acts.KindRefund, "", m.charge)
		c := &a.Charges[0]
		c.Cost, c.UpTo, c.At, c.Delay = s.number(words[2]), 0, m.decision.At.UnixMicro(), m.decision.Delay
		if len(words) == 5 {
			c.Limit = s.limits[words[4]]
		}
		return a
	case verb == "amend" && words[1] == "take":
		last := slices.IndexFunc(words, func(word string) bool { return strings.HasSuffix(word, ":") })
		words[last] = strings.TrimSuffix(words[last], ":")
		return s.about(verb, s.act(words[1:last+1]), words[last+1:])
	case take != nil && verb != "take" && verb != "record" && verb != "reset" && !slices.Contains(words, "attempt"):
		return s.about(verb, take, words[2:])
	}
	kind, found := kinds[verb]
	if !found {
		s.mistake("no act is called " + verb)
	}
	a := NewAct()
	a.Kind = kind
	s.charges(a, words[1:])
	a.Decisions = make([]weir.Decision, len(a.Charges))
	if a.Scope.Owner != "" {
		a.Scope.Asks = strconv.FormatInt(a.Charges[0].Cost, 10)
	} else if a.ID != "" {
		a.Scope.Owner = s.key("owner")
	}
	return a
}

// key returns a key or an ID of the algorithm that is run.
func (s *script) key(name string) string { return strings.TrimSpace(s.algorithm + " " + name) }

// about returns an act on the take of an ID.
func about(kind weir.Kind, id string, charges ...weir.Charge) *weir.Act {
	a := NewAct(charges...)
	a.Kind, a.ID = kind, id
	return a
}

// about returns an act about a take.
func (s *script) about(verb string, take *weir.Act, words []string) *weir.Act {
	a := again(take)
	switch verb {
	case "repeat":
		return a
	case "amend":
		a.Kind = acts.KindAmend
		for i := range a.Decisions {
			a.Decisions[i] = s.amended(words[min(i, len(words)-1)], a.Charges[i].Cost)
		}
		return a
	}
	a.Kind, a.Hold, a.MaxWait, a.Immediate, a.Charges = kinds[verb], 0, 0, false, slices.Clone(a.Charges)
	for i := range a.Charges {
		c := &a.Charges[i]
		if c.Keep, c.UpTo = 0, 0; len(words) > 0 {
			c.Cost = s.number(words[0])
		}
	}
	if len(words) == 3 {
		a.Hold = s.duration(words[2])
	}
	return a
}

// amended is the decision that a word of an amendment stands for.
func (s *script) amended(word string, cost int64) weir.Decision {
	switch word {
	case "granted":
		return weir.Decision{Outcome: weir.Granted, Granted: cost}
	case "refused":
		return weir.Decision{Outcome: weir.Refused, RetryAfter: time.Second}
	case "not-charged":
		return weir.Decision{Outcome: weir.NotCharged, RetryAfter: time.Second}
	case "overdue":
		return weir.Decision{Outcome: weir.Refused, RetryAfter: -1}
	case "not-evaluated":
		return weir.Decision{}
	}
	return weir.Decision{Outcome: weir.Granted, Granted: s.number(word)}
}

// charges reads the charges of an act and its settings.
func (s *script) charges(a *weir.Act, words []string) {
	c := weir.Charge{Key: s.key("key"), Limit: s.limits[""]}
	if s.tagged {
		c.HashTag = "tag"
	}
	blank := c
	end := func() {
		group, alternative := c.Group, c.Alt
		a.Charges, c = append(a.Charges, c), blank
		c.Group, c.Alt = group, alternative
	}
	for len(words) > 0 {
		word, value := words[0], ""
		if words = words[1:]; len(words) > 0 {
			value = words[0]
		}
		takes := true
		switch word {
		case "id":
			a.ID = s.key(value)
		case "attempt":
			a.Attempt = uint64(s.number(value))
		case "scope":
			a.Scope.Owner = s.key(value)
		case "hold":
			a.Hold = s.duration(value)
		case "wait":
			a.MaxWait = s.duration(value)
		case "keep":
			c.Keep = s.number(value)
		case "of":
			if c.Limit = s.limits[value]; c.Limit == nil {
				s.mistake("no limit is called " + value)
			}
		default:
			takes = false
		}
		if takes {
			words = words[1:]
			continue
		}
		switch word {
		case "now":
			a.Immediate = true
		case "new":
			a.NewID = true
		case "anonymous":
			a.Anonymous = true
		case ",":
			end()
		case "|":
			end()
			c.Alt++
		case "&":
			end()
			c.Group, c.Alt = c.Group+1, 0
		default:
			s.cost(&c, word)
		}
	}
	end()
}

// cost reads the cost of a charge, or its key.
func (s *script) cost(c *weir.Charge, word string) {
	if word[0] < '0' || word[0] > '9' {
		c.Key = s.key(word)
		return
	}
	cost, upTo, found := strings.Cut(word, "..")
	if c.Cost = s.number(cost); found {
		c.UpTo = s.number(upTo)
	}
}
