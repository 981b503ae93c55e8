package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	mayReload  = 200 * time.Millisecond
	firstGood  = 1_000_000 // the count that stands for the first revision
	mayBloat   = 128 << 20 // of resident memory: 64 MiB of garbage are not collected for
	ofTheGood  = 3         // one change in so many is good
	maxChanges = 10_000
)

// TestTorture changes the rules of a server thousands of times, in all ways in which
// files change, and for the most part into nonsense, while callers ask: each is answered
// by one whole revision, which is the last good one or the one before.
func TestTorture(t *testing.T) {
	t.Parallel()
	f := newRuleFiles(t)
	i := serve(t, "memory", "--config", f.path)
	changes := 60
	if *full {
		changes = maxChanges
	}
	control := startControl()
	ctx, enough := context.WithCancel(t.Context())
	var asked atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() { f.ask(ctx, i, &asked) })
	}
	before, heap, slowest, good := i.resident(), int64(0), time.Duration(0), 0
	for n := range changes {
		if n == changes/10 {
			heap = i.heap(t)
		}
		text, revision := f.next()
		f.change(text)
		began := time.Now()
		if err := i.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if revision == 0 {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		good++
		i.until(fmt.Sprint("revision ", revision), func() bool { return f.seen.Load() >= revision })
		slowest = max(slowest, time.Since(began))
	}
	enough()
	callers.Wait()
	after, grown, late := i.resident(), i.heap(t)-heap, control.end()
	r := row{
		fault:    fmt.Sprintf("%d changes of rules files, %d of them good", changes, good),
		promise:  "no answer by a mixed or broken revision, memory flat",
		measured: fmt.Sprintf("%d answers; heap grown by %d KiB, resident %d to %d MiB", asked.Load(), grown>>10, before>>20, after>>20),
	}
	if err := f.wrong.Load(); err != nil {
		r.fail(t, "%v", *err)
	}
	if after > before+mayBloat || grown > mayGrow || asked.Load() < int64(good) {
		r.fail(t, "%s", r.measured)
	}
	report(r)
	timely := timed{row: row{
		fault: r.fault, promise: fmt.Sprintf("a good one is in force within %v", mayReload),
		measured: fmt.Sprintf("%v at most; this machine was up to %v late", slowest.Round(time.Millisecond), late.Round(time.Millisecond)),
	}, kept: slowest-late <= mayReload, late: late > mayReload}
	timely.report(t)
}

// ruleFiles are the rules of a server as Kubernetes mounts them: a link to a file
// through a link to a folder. The counts of both rules are the revision.
type ruleFiles struct {
	t      *testing.T
	rng    *rand.Rand
	folder string
	path   string
	last   int64        // the latest good revision
	mounts int          // folders there have been
	seen   atomic.Int64 // the latest revision that an answer was by
	wrong  atomic.Pointer[error]
}

func newRuleFiles(t *testing.T) *ruleFiles {
	t.Helper()
	f := &ruleFiles{t: t, rng: rand.New(rand.NewPCG(*seed, 2)), folder: t.TempDir(), last: firstGood}
	f.path = filepath.Join(f.folder, "rules.yaml")
	f.mount(rulesOf(f.last))
	if err := os.Symlink("..data/rules.yaml", f.path); err != nil {
		t.Fatal(err)
	}
	return f
}

// rulesOf are a revision, in a form of which no beginning is one.
func rulesOf(revision int64) string {
	const rule = "{key: %s, rate_limit: {requests_per_unit: %d, unit: second, algorithm: gcra}}"
	return fmt.Sprintf("{domain: torture, descriptors: ["+rule+",\n"+rule+"]}\n", "user", revision, "path", revision)
}

// next is the next text of the file, and its number if it is good.
func (f *ruleFiles) next() (text string, revision int64) {
	if f.rng.IntN(ofTheGood) == 0 {
		f.last++
		return rulesOf(f.last), f.last
	}
	whole := rulesOf(f.last + 1)
	switch f.rng.IntN(6) {
	case 0:
		return whole[:f.rng.IntN(len(whole)-2)], 0
	case 1:
		return f.noise(f.rng.IntN(4096)), 0
	case 2:
		at := f.rng.IntN(len(whole) - 2)
		return whole[:at] + f.noise(3) + whole[at:], 0
	case 3:
		return bomb, 0
	case 4:
		return strings.Repeat("[", 10_000), 0
	}
	return strings.Repeat("# nothing\n", 200_000), 0
}

// noise is bytes that YAML has no place for.
func (f *ruleFiles) noise(n int) string {
	text := []byte("\x00\xff")
	for range n {
		text = append(text, byte(f.rng.IntN(256)))
	}
	return string(text)
}

// bomb is a few hundred bytes that stand for a billion.
var bomb = func() string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for n := 1; n < 10; n++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", n, n, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", n-1), 9), ", "))
	}
	return text + "domain: torture\ndescriptors: *a9\n"
}()

// change brings a text there in one of the ways in which files change.
func (f *ruleFiles) change(text string) {
	file := filepath.Join(f.folder, "..data", "rules.yaml")
	switch f.rng.IntN(3) {
	case 0:
		f.mount(text)
	case 1:
		f.must(os.WriteFile(file, []byte(text), 0o600))
	case 2:
		f.must(errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)))
	}
}

// mount puts a new folder in the place of the one before.
func (f *ruleFiles) mount(text string) {
	f.mounts++
	name := func(n int) string { return fmt.Sprint("..mount-", n) }
	link := filepath.Join(f.folder, "..data")
	f.must(errors.Join(
		os.Mkdir(filepath.Join(f.folder, name(f.mounts)), 0o700),
		os.WriteFile(filepath.Join(f.folder, name(f.mounts), "rules.yaml"), []byte(text), 0o600),
		os.Symlink(name(f.mounts), link+".new"),
		os.Rename(link+".new", link),
		os.RemoveAll(filepath.Join(f.folder, name(f.mounts-1))),
	))
}

func (f *ruleFiles) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

const tortured = `{"domain":"torture","descriptors":[{"entries":[{"key":"user","value":"1"}]},{"entries":[{"key":"path","value":"1"}]}]}`

// ask asks until ctx ends. Each answer is by one revision, and none by an older one than
// the answer before.
func (f *ruleFiles) ask(ctx context.Context, i *instance, asked *atomic.Int64) {
	client := newClient(f.t)
	before := int64(firstGood)
	for ctx.Err() == nil {
		revision, err := revisionOf(client, "http://"+i.http+"/v1/take")
		if err == nil && revision < before {
			err = fmt.Errorf("revision %d after %d", revision, before)
		}
		if err != nil {
			f.wrong.CompareAndSwap(nil, &err)
		}
		before = max(before, revision)
		for seen := f.seen.Load(); seen < revision && !f.seen.CompareAndSwap(seen, revision); seen = f.seen.Load() {
		}
		asked.Add(1)
	}
}

// revisionOf asks once for both rules and returns the revision that answers.
func revisionOf(client *http.Client, url string) (int64, error) {
	resp, err := client.Post(url, "application/json", strings.NewReader(tortured))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		return 0, err
	}
	var a struct {
		Limits []struct {
			Limit int64 `json:"limit"`
		} `json:"limits"`
	}
	err = json.Unmarshal(body.Bytes(), &a)
	if err != nil || resp.StatusCode != http.StatusOK || len(a.Limits) != 2 || a.Limits[0] != a.Limits[1] {
		return 0, fmt.Errorf("%d %s %w", resp.StatusCode, &body, err)
	}
	return a.Limits[0].Limit, nil
}
