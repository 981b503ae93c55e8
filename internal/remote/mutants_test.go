package remote_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var plant = flag.Bool("mutants", false, "plant each mutant and run the test that finds it")

// A mutant is a mistake that one could make in a file of this package.
type mutant struct {
	name      string
	file      string
	old, with string
	found     string // by this test
}

var mutants = []mutant{
	// What is outstanding.
	{"refunds are not recorded", "policy.go", "		r.noteRefund(l, told, i, -missing, &reply.Decisions[i])\n", "		_ = reply\n", "TestSettled"},
	{"units are not recorded", "policy.go", "	if !l.debit(c, units, now, now+fresh.Microseconds()) {", "	if false && !l.debit(c, units, now, now+fresh.Microseconds()) {", "TestScripts/all/fixed_window/1"},
	{"a record that was not applied is forgotten", "units.go", "			d.units, d.older, d.since = d.units+was.units, d.older+was.older, min(d.since, was.since)\n", "", "TestScripts/all/fixed_window/1"},
	{"a lost record is sent again", "units.go", "		case notApplied(err):\n			if d.units", "		case err != nil:\n			if d.units", "TestRecordsAreSentOnce"},
	{"acts do not pay first", "pay.go", "outages, rest := r.payFirst(ctx, all)\n", "outages, rest := r.calls.Begun(), all\n", "TestStoreIsToldFirst"},
	{"acts do not wait for payments in flight", "pay.go", "		case c.busy == nil:\n", "		case c.busy == nil || r != nil:\n", "TestActsWaitForWhatIsInFlight"},
	{"a grant is not amended", "entry.go", "		l.deliver(e, &amend)\n", "", "TestScripts/ids/fixed_window/1"},
	{"what is done to a grant here stays here", "policy.go", "		e.until = max(e.until, until)\n		l.deliver(e, at.part(a, l))\n", "		e.until = max(e.until, until)\n", "TestIDsInAnOutage"},
	{"an end is answered and not kept", "policy.go", "		if l.deliver(e, at.part(a, l)); len(e.acts) == 1 {", "		if len(e.acts) == 1 {", "TestEndsAreDelivered"},
	{"the last known state is ignored", "share.go", "			r.seed(&own, max(0, left-unrecorded))\n", "", "TestScripts/units/fixed_window/1"},
	{"units not recorded are ignored", "units.go", "		unrecorded := d.units + d.older + d.paying\n", "		unrecorded := int64(0)\n", "TestShareBeginsWithoutWhatIsOwed"},
	{"a node that is back is not asked", "policy.go", "&& r.calls.Reachable(a) {\n		a.Err = nil", "&& r == nil {\n		a.Err = nil", "TestScripts/unsent/gcra/1"},
	{"a slot stays here after it was recorded", "entry.go", "		r.freeHere(e.grant.take)\n", "		_ = e.grant\n", "TestScripts/ids"},
	{"the rest of a list is dropped", "entry.go", "		e.acts = e.acts[1:]\n", "		e.acts = nil\n", "TestScripts/ids/fixed_window/1"},
	{"a refund in an outage is confirmed and dropped", "policy.go", "	case a.Kind == acts.KindRefund && a.Err == nil:\n		return (*Remote).refundOnce\n", "	case a.Kind == acts.KindRefund && a.Err == nil:\n", "TestRefundsWithoutIDsAreSentOnce"},
	{"units of a counter are recorded whole", "units.go", " || d.limit.Algorithm == weir.SlidingCounter\n", "\n", "TestHalfLoadAfterAnOutage"},

	// Nodes.
	{"one ledger for all nodes", "ledger.go", "func (all *ledgers) of(node string) *ledger {\n", "func (all *ledgers) of(node string) *ledger {\n	node = \"\"\n", "TestScripts/one_node/fixed_window/1"},
	{"an entry stays whole", "location.go", "		if at.ledger(i) != l {\n			continue\n		}\n", "", "TestOneNodeOut"},
	{"acts of a call wait for the debts of another's node", "pay.go", "	if len(groups) == 1 {\n", "	if len(groups) > 0 {\n", "TestHangingNodeKeepsNobodyWaiting"},
	{"keys that move leave their debts behind", "pay.go", "	for _, l := range *all.moved.Load() {", "	for _, l := range []*ledger(nil) {", "TestKeysMoveToAnotherNode"},
	{"debts of a dead node do not move", "background.go", "	case !r.calls.Reaches(l.node) && !r.hasMoved(l):", "	case !r.calls.Reaches(l.node):", "TestKeysMoveToAnotherNode"},
	{"a payment has no bound", "pay.go", "const actsPerCall = 64\n", "const actsPerCall = 1 << 20\n", "TestManyIDsOfOneKey"},
	{"a debt that fails blocks for ever", "entry.go", "{ return d.failures < maxFailures }", "{ return d != nil }", "TestDebtThatFails"},
	{"no debt blocks", "entry.go", "{ return d.failures < maxFailures }", "{ return d == nil }", "TestStoreIsToldFirst"},
	{"the memory of debts is not counted", "ledger.go", "{ l.all.bytes.Add(int64(bytes)) }", "{ _ = bytes }", "TestLedgerHasABound"},
	{"what has drained in an outage is kept", "background.go", "		r.prune(l)\n", "", "TestChargesBack"},

	// Withdrawals.
	{"no take is withdrawn", "policy.go", "		if own := at.part(told, l); !l.withdraw(own, until) {", "		if own := at.part(told, l); until == 0 {", "TestSettled"},
	{"a withdrawal is sent once", "entry.go", "				l.withdrawals, l.refused = append(l.withdrawals, due[i]), true\n				continue\n", "				l.add(-1 + 0*int64(i))\n				continue\n", "TestWithdrawalsOfADeadNode"},
	{"only a take whose reply is known is withdrawn", "policy.go", "	case notApplied(reply.Err), reply.Err", "	case reply.Err != nil, reply.Err", "TestSettled"},
	{"a take that was refused here withdraws nothing", "policy.go", "	case takesID(a) && a.Err != nil:\n", "	case takesID(a) && a.Err != nil && isOut(reason):\n", "TestSettled"},
	{"a take whose caller left is not withdrawn", "policy.go", "		if a.Err = reason; takesID(a) {", "		if a.Err = reason; false {", "TestScripts/leaving"},
	{"all calls of an ID have one number", "remote.go", "			a.Attempt = rand.Uint64() | 1\n", "			a.Attempt = 1 + 0*rand.Uint64()\n", "TestScripts/elsewhere/gcra/3"},
	{"the number stays in its caller's act", "remote.go", "		a.Attempt = 0\n", "		_ = a\n", "TestScripts/ids/gcra/1"},
	{"new withdrawals wait for the background", "background.go", "	if len(l.withdrawals) == 0 || l.refused ||", "	if l != nil || l.refused ||", "TestSlowStoreIsWithdrawn"},
	{"withdrawals that failed are not repeated", "background.go", "		add(r.payWithdrawals(l, actsPerCall/2))\n", "		_ = add\n", "TestWithdrawalsOfADeadNode"},
	{"a withdrawal whose reply was lost counts as acknowledged", "entry.go", "			if undecided(reply) {\n				l.withdrawals", "			if notApplied(reply.Err) {\n				l.withdrawals", "TestScripts/lost/(gcra|fixed_window)"},
	{"a panic of the store withdraws nothing", "pay.go", "			r.abandon(all)\n", "", "TestPanicOfTheStore"},
}

// TestMutants checks that the text of each mutant is there once. With -mutants it plants each, and
// demands that its test fails.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			text, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), m.old); n != 1 {
				t.Fatalf("%q is %d times in %s", m.old, n, m.file)
			}
			if *plant {
				m.plant(t, strings.Replace(string(text), m.old, m.with, 1))
			}
		})
	}
}

// plant runs the mutant's test with another text of its file.
func (m *mutant) plant(t *testing.T, text string) {
	dir := t.TempDir()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	changed, overlay, binary := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "remote.test")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(folder, m.file): changed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-c", "-o", binary, "-overlay", overlay, ".")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	pattern := "^" + m.found
	if !strings.Contains(m.found, "/") {
		pattern += "$"
	}
	run := exec.CommandContext(t.Context(), binary, "-test.run", pattern, "-test.timeout", "2m")
	if output, err := run.CombinedOutput(); err == nil {
		t.Errorf("%s does not find it: %s", m.found, output)
	}
}
