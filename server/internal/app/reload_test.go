package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/server/internal/config"
)

// rulesOf is a file with one rule of so many a day.
func rulesOf(n int) string {
	return fmt.Sprintf("domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {requests_per_unit: %d, unit: day, algorithm: gcra}\n", n)
}

// A reloading server, with administrators.
type reloading struct {
	*testing.T
	app *App
}

func serveRules(t *testing.T, path string) *reloading {
	t.Helper()
	return serveOptions(t, Options{Config: path})
}

func serveOptions(t *testing.T, o Options) *reloading {
	t.Helper()
	o.Admin.Address = "127.0.0.1:0"
	return &reloading{t, start(t, o)}
}

// limit is the limit that a user meets now, as the header tells it.
func (r *reloading) limit() string {
	r.Helper()
	resp, _ := send(r.T, r.app, "http", "GET", "/v1/auth?domain=shop&user=u", "")
	return resp.Header.Get("X-RateLimit-Limit")
}

// ready is what administrators are told.
func (r *reloading) ready() string {
	r.Helper()
	resp, text := send(r.T, r.app, "admin", "GET", "/readyz", "")
	return resp.Status + " " + text
}

// until waits for a condition that the server brings about by itself.
func (r *reloading) until(what string, holds func() bool) {
	r.Helper()
	eventually(r.T, func() error {
		if !holds() {
			return fmt.Errorf("never: %s; limit %s, %s", what, r.limit(), r.ready())
		}
		return nil
	})
}

func (r *reloading) untilLimit(n int) {
	r.Helper()
	r.until(fmt.Sprint("limit ", n), func() bool { return r.limit() == fmt.Sprint(n) })
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSurvivesTheFolderGoing(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "rules")
	fill := func(n int) {
		if err := os.MkdirAll(filepath.Join(folder, "shop"), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, "shop", "rules.yaml"), rulesOf(n))
	}
	fill(10)
	r := serveRules(t, folder)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	r.until("the loss is told", func() bool { return strings.Contains(r.ready(), `"ok":false`) })
	if r.limit() != "10" {
		t.Errorf("limit %s without files", r.limit())
	}
	fill(20)
	r.untilLimit(20)
	fill(30)
	r.untilLimit(30)
}

// revisions is a folder of rules revisions behind a link, as both Kubernetes and
// RUNTIME_ROOT keep them. Each revision has two files, whose limits are its number.
type revisions struct {
	t    *testing.T
	link string
}

func newRevisions(t *testing.T, numbers ...int) *revisions {
	t.Helper()
	r := &revisions{t: t, link: filepath.Join(t.TempDir(), "current")}
	for _, n := range numbers {
		folder := filepath.Join(r.target(n), "ratelimit", "config")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, "a"), rulesOf(n))
		write(t, filepath.Join(folder, "b"), strings.ReplaceAll(rulesOf(n), "user", "path"))
	}
	r.flip(numbers[0])
	return r
}

func (r *revisions) target(n int) string {
	return filepath.Join(filepath.Dir(r.link), fmt.Sprint("revision-", n))
}

// flip makes the link lead to another revision, at one instant.
func (r *revisions) flip(n int) {
	next := r.link + ".new"
	if err := errors.Join(os.Symlink(r.target(n), next), os.Rename(next, r.link)); err != nil {
		r.t.Error(err)
	}
}

// options are those of a server that merges the files of the folder.
func (r *revisions) options() Options {
	return Options{Config: filepath.Join(r.link, "ratelimit", "config"), ConfigFiles: config.FilesHidden, ConfigMerge: true}
}

// TestFollowsALinkedRoot swaps a folder far above the files.
func TestFollowsALinkedRoot(t *testing.T) {
	t.Parallel()
	files := newRevisions(t, 10, 20, 30)
	r := serveOptions(t, files.options())
	for _, n := range []int{20, 30, 10, 30} {
		files.flip(n)
		r.untilLimit(n)
	}
	// What the link leads to now is watched, with all its folders.
	folder := filepath.Join(files.target(30), "ratelimit", "config")
	write(t, filepath.Join(folder, "a"), rulesOf(31))
	r.untilLimit(31)
	if err := errors.Join(os.Remove(filepath.Join(folder, "a")), os.Mkdir(filepath.Join(folder, ".hidden"), 0o755)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, ".hidden", "a"), rulesOf(32))
	r.untilLimit(32)
	write(t, filepath.Join(folder, ".hidden", "a"), rulesOf(33))
	r.untilLimit(33)
}

// TestNoCallSeesTwoRevisionsOfALink flips a link thousands of times, reading
// all the while, and calls throughout: each call meets one revision.
func TestNoCallSeesTwoRevisionsOfALink(t *testing.T) {
	t.Parallel()
	flips := 2000
	if testing.Short() {
		flips = 300
	}
	files := newRevisions(t, 1000, 2000, 3000)
	r := serveOptions(t, files.options())
	ctx, cancel := context.WithCancel(context.Background())
	var calls, met sync.Map
	var callers sync.WaitGroup
	for caller := range 2 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				one, other := r.both()
				if one != other || one == "" {
					t.Errorf("one call met %q and %q", one, other)
				}
				met.Store(one, true)
				calls.Store(caller, n)
			}
		})
	}
	for n := range flips {
		files.flip([]int{1000, 2000, 3000}[n%3])
		r.app.Reload()
	}
	files.flip(2000)
	r.untilLimit(2000)
	cancel()
	callers.Wait()
	total, revisions := 0, 0
	calls.Range(func(_, n any) bool { total += n.(int); return true })
	met.Range(func(any, any) bool { revisions++; return true })
	if revisions < 2 {
		t.Errorf("%d calls met %d revisions", total, revisions)
	}
	t.Logf("%d flips, %d calls, %d revisions met", flips, total, revisions)
}

// TestKeepsTheLastGoodRules writes all kinds of things over the rules: these stay in force, and
// /readyz names the file, until it has rules again.
func TestKeepsTheLastGoodRules(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, rulesOf(10))
	r := serveRules(t, file)
	good := rulesOf(20)
	for n, bad := range []string{good[:70], "", "\x00\xff\xfe", "domain: [", strings.Repeat("- ", 1000), "domain: shop\ndomain: shop\n", "a: &a [*a]"} {
		write(t, file, bad)
		r.until("the error is shown", func() bool { return strings.Contains(r.ready(), `"name":"rules","ok":false`) })
		if ready := r.ready(); !strings.HasPrefix(ready, "200") || !strings.Contains(ready, file) {
			t.Errorf("ready after %q: %s", bad, ready)
		}
		if r.limit() != fmt.Sprint(10+n) {
			t.Errorf("limit %s after %q", r.limit(), bad)
		}
		write(t, file, rulesOf(11+n))
		r.untilLimit(11 + n)
		r.until("the error is gone", func() bool { return !strings.Contains(r.ready(), `"ok":false`) })
	}
}

// both takes from two rules in one call and returns the limits it met.
func (r *reloading) both() (one, other string) {
	body := `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"x"}]},{"entries":[{"key":"path","value":"x"}]}]}`
	resp, _ := send(r.T, r.app, "http", "POST", "/v1/take", body)
	policies := strings.Split(resp.Header.Get("RateLimit-Policy"), ", ")
	if len(policies) != 2 {
		return "", ""
	}
	_, one, _ = strings.Cut(policies[0], ";")
	_, other, _ = strings.Cut(policies[1], ";")
	return one, other
}

// TestReloadsWithinASecond changes files in all the ways that people do. The rules are in force a
// second later, by the clock of the test, also while other programs write into the folder.
func TestReloadsWithinASecond(t *testing.T) {
	t.Parallel()
	link := func(t *testing.T, target, name string) {
		t.Helper()
		if err := errors.Join(os.Symlink(target, name+".new"), os.Rename(name+".new", name)); err != nil {
			t.Fatal(err)
		}
	}
	const restless = "a file that nothing leaves alone"
	for name, c := range map[string]struct {
		begin  func(t *testing.T, dir string) (config string)
		change func(t *testing.T, dir string)
	}{
		"a file": {
			func(t *testing.T, dir string) string {
				write(t, dir+"/rules.yaml", rulesOf(1))
				return dir + "/rules.yaml"
			},
			func(t *testing.T, dir string) { write(t, dir+"/rules.yaml", rulesOf(22)) },
		},
		"a file that is replaced by one of its size and age": {
			func(t *testing.T, dir string) string {
				write(t, dir+"/rules.yaml", rulesOf(1))
				write(t, dir+"/next", rulesOf(2))
				for _, file := range []string{"/rules.yaml", "/next"} {
					if err := os.Chtimes(dir+file, time.Unix(1e9, 0), time.Unix(1e9, 0)); err != nil {
						t.Fatal(err)
					}
				}
				return dir + "/rules.yaml"
			},
			func(t *testing.T, dir string) {
				if err := os.Rename(dir+"/next", dir+"/rules.yaml"); err != nil {
					t.Fatal(err)
				}
			},
		},
		"a link to another file": {
			func(t *testing.T, dir string) string {
				write(t, dir+"/v1", rulesOf(1))
				write(t, dir+"/v2", rulesOf(2))
				link(t, "v1", dir+"/rules.yaml")
				return dir + "/rules.yaml"
			},
			func(t *testing.T, dir string) { link(t, "v2", dir+"/rules.yaml") },
		},
		"the file that a link in another folder leads to": {
			func(t *testing.T, dir string) string {
				write(t, dir+"/elsewhere/v1", rulesOf(1))
				link(t, dir+"/elsewhere/v1", dir+"/elsewhere/current")
				link(t, dir+"/elsewhere/current", dir+"/rules.yaml")
				return dir + "/rules.yaml"
			},
			func(t *testing.T, dir string) { write(t, dir+"/elsewhere/v1", rulesOf(22)) },
		},
		"a link in the middle": {
			func(t *testing.T, dir string) string {
				write(t, dir+"/elsewhere/v1", rulesOf(1))
				write(t, dir+"/elsewhere/v2", rulesOf(2))
				link(t, dir+"/elsewhere/v1", dir+"/elsewhere/current")
				link(t, dir+"/elsewhere/current", dir+"/rules.yaml")
				return dir + "/rules.yaml"
			},
			func(t *testing.T, dir string) { link(t, dir+"/elsewhere/v2", dir+"/elsewhere/current") },
		},
		"a link in a folder of rules": {
			func(t *testing.T, dir string) string {
				write(t, dir+"/elsewhere/v1", rulesOf(1))
				if err := os.Mkdir(dir+"/rules", 0o755); err != nil {
					t.Fatal(err)
				}
				link(t, dir+"/elsewhere/v1", dir+"/rules/shop.yaml")
				return dir + "/rules"
			},
			func(t *testing.T, dir string) { write(t, dir+"/elsewhere/v1", rulesOf(22)) },
		},
		restless: {
			func(t *testing.T, dir string) string {
				write(t, dir+"/rules.yaml", rulesOf(1))
				return dir + "/rules.yaml"
			},
			func(*testing.T, string) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, until := t.TempDir(), time.Second
			if name == restless {
				until = settleMost + poll
			}
			if err := os.Mkdir(dir+"/elsewhere", 0o755); err != nil {
				t.Fatal(err)
			}
			path := c.begin(t, dir)
			synctest.Test(t, func(t *testing.T) {
				o := Options{Config: path, Logger: slog.New(slog.DiscardHandler), Reloaded: func(error) {}}
				files, err := loadRules(&o)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					files.run(ctx)
				}()
				time.Sleep(3*time.Second + poll/2 + 5*time.Millisecond) // no write at the instant of a look
				before := files.loads.Load()
				c.change(t, dir)
				for i := range int(until / (10 * time.Millisecond)) {
					write(t, filepath.Join(dir, "access.log"), fmt.Sprint(i))
					if name == restless {
						write(t, path, rulesOf(2)+strings.Repeat("#\n", i))
					}
					time.Sleep(10 * time.Millisecond)
				}
				if loads := files.loads.Load() - before; loads != 1 {
					t.Errorf("%d new revisions in %v", loads, until)
				}
				cancel()
				<-done
			})
		})
	}
}
