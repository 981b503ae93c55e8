package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/store"
)

// A confined is a Redis with the user weir, whose first password is "first", and the file from
// which stores read it.
type confined struct {
	*testing.T
	*testserver.Redis
	file string
}

func startConfined(t *testing.T) confined {
	t.Helper()
	r := confined{t, testserver.StartRedis(t), filepath.Join(t.TempDir(), "password")}
	r.set("on", ">first", "~*", "&*", "+@all")
	r.write("first")
	return r
}

// set changes the user at the server.
func (r confined) set(rules ...string) {
	r.Helper()
	if _, err := r.Do(append([]string{"ACL", "SETUSER", "weir"}, rules...)...); err != nil {
		r.Fatal(err)
	}
}

// write changes the password for stores.
func (r confined) write(password string) {
	r.Helper()
	next := r.file + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(password+"\n"), 0o600), os.Rename(next, r.file)); err != nil {
		r.Fatal(err)
	}
}

// open opens a store of the user weir that reads its password again and again. More settings
// of its URL are the caller's.
func open(t *testing.T, addr, settings string, every time.Duration, o store.Options) *store.Store {
	t.Helper()
	o.URL = "redis://weir@" + addr + "?dial_timeout=30s&pool_timeout=30s&read_timeout=30s" + settings
	s, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.ReadPasswordEvery(every)
	return s
}

// TestRotation changes the password of a user under load, first at the server, then for
// the store, and forgets the old one once new connections get the new one. No call is lost.
func TestRotation(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"file", "command"} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			server := startConfined(t)
			passwords := store.Passwords{File: server.file}
			if source == "command" {
				passwords = store.Passwords{Command: "cat " + server.file}
			}
			s := open(t, server.Addr(), "&pool_size=4&write_timeout=30s", 20*time.Millisecond, store.Options{Passwords: passwords})
			ctx, stop := context.WithCancel(t.Context())
			patient, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			t.Cleanup(cancel)
			var callers sync.WaitGroup
			var taken atomic.Int64
			limit := weir.PerHour(1_000_000).MustCompile()
			for range 16 {
				callers.Go(func() {
					for ctx.Err() == nil {
						a := storetest.NewAct(weir.Charge{Key: strconv.Itoa(rand.IntN(100)), Limit: limit, Cost: 1})
						s.Take(patient, []*weir.Act{a})
						if a.Err != nil {
							t.Errorf("a call was lost: %v", a.Err)
							return
						}
						taken.Add(1)
					}
				})
			}
			defer callers.Wait()
			defer stop()
			last := "first"
			for i := range 5 {
				next := fmt.Sprint("password ", i)
				before := taken.Load()
				server.set(">" + next)
				server.write(next)
				// Connections that have begun may still send the last one.
				testserver.Eventually(t, "the new password holds", func() bool { return s.Password() == next })
				server.set("<" + last)
				last = next
				testserver.Eventually(t, "decisions go on", func() bool { return taken.Load() > before+100 })
			}
		})
	}
}

// TestRotationWhileConnecting forgets a password that is on its way to the server. The call
// that waits for the connection connects once more.
func TestRotationWhileConnecting(t *testing.T) {
	t.Parallel()
	server := startConfined(t)
	sent, forgotten := make(chan struct{}, 1), make(chan struct{})
	proxy := testserver.StartProxy(t, server.Addr(), func(request []byte) testserver.Fault {
		if bytes.Contains(request, []byte("first")) {
			select {
			case sent <- struct{}{}:
			default:
			}
			<-forgotten
		}
		return testserver.Pass
	})
	s := open(t, proxy.Addr(), "", 5*time.Millisecond, store.Options{Passwords: store.Passwords{File: server.file}})
	called := make(chan error, 1)
	go func() { called <- s.Ping(t.Context()) }()
	<-sent
	server.set(">second")
	server.write("second")
	testserver.Eventually(t, "the new password holds", func() bool { return s.Password() == "second" })
	server.set("<first")
	close(forgotten)
	if err := <-called; err != nil {
		t.Error(err)
	}
}

// TestEarlyPassword gives the store a password before the server has it: the last one holds
// until the server accepts the new one.
func TestEarlyPassword(t *testing.T) {
	t.Parallel()
	server := startConfined(t)
	var log testserver.Output
	s := open(t, server.Addr(), "&pool_size=1&conn_max_idle_time=1ns", 5*time.Millisecond, store.Options{
		Passwords: store.Passwords{File: server.file}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	patient, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ping := func() {
		t.Helper()
		// Each uses a connection of its own.
		if err := s.Ping(patient); err != nil {
			t.Fatal(err)
		}
	}
	ping()
	server.write("second")
	testserver.Eventually(t, "the log says so", func() bool { return strings.Contains(log.String(), "the last one holds") })
	ping()
	server.set(">second")
	testserver.Eventually(t, "the new password holds", func() bool { return s.Password() == "second" })
	server.set("<first")
	ping()
	if n := strings.Count(log.String(), "\n"); n != 1 || strings.Contains(log.String(), "second") {
		t.Errorf("log: %s", log.String())
	}
}

// TestPasswordSources: what cannot be a source of passwords is named at the start.
func TestPasswordSources(t *testing.T) {
	for _, variable := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(variable, "")
	}
	t.Setenv("AWS_REGION", "eu-west-1")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		url  string
		from store.Passwords
	}{
		"store password is from several sources":    {"redis://h", store.Passwords{File: file, Command: "true"}},
		"store is with a password":                  {"redis://:p@h", store.Passwords{Command: "true"}},
		"store is memory":                           {"memory", store.Passwords{Command: "true"}},
		"store password command is \"\"":            {"redis://h", store.Passwords{Command: " "}},
		"store password command is no-such-program": {"redis://h", store.Passwords{Command: "no-such-program x"}},
		"store iam is dynamodb:x":                   {"rediss://u@h", store.Passwords{IAM: "dynamodb:x"}},
		"store iam is elasticache:":                 {"rediss://u@h", store.Passwords{IAM: "elasticache:"}},
		"store iam is memorydb-serverless:x":        {"rediss://u@h", store.Passwords{IAM: "memorydb-serverless:x"}},
		"store is without a user":                   {"rediss://h", store.Passwords{IAM: "elasticache:x"}},
		"store is without TLS":                      {"redis://u@h", store.Passwords{IAM: "elasticache:x"}},
		"store iam is without credentials of AWS":   {"rediss://u@h", store.Passwords{IAM: "elasticache:x"}},
	} {
		s, err := store.Open(store.Options{URL: c.url, Passwords: c.from})
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, weir.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestPasswordCommand: a command that fails, or prints something else than one line, is an
// error of each connection, which does not repeat what it printed.
func TestPasswordCommand(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for command, want := range map[string]string{"false": "exit status 1", "echo": "prints one line", "printf hunter2\\nhunter3": "prints one line"} {
		s, err := store.Open(store.Options{URL: "redis://weir@" + server.Addr(), Passwords: store.Passwords{Command: command}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v", command, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCommandRunsOnce: connections that begin together run the command once.
func TestCommandRunsOnce(t *testing.T) {
	t.Parallel()
	server := startConfined(t)
	folder := t.TempDir()
	script := filepath.Join(folder, "password")
	if err := os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\necho x >> %s/runs\nsleep 0.1\necho first\n", folder), 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, server.Addr(), "", time.Minute, store.Options{Passwords: store.Passwords{Command: script}})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if err := s.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	runs, err := os.ReadFile(filepath.Join(folder, "runs"))
	// A connection that is a second late has it run again.
	if n := len(runs) / 2; err != nil || n == 0 || n > 2 {
		t.Errorf("the command ran %d times, %v", n, err)
	}
}

// TestToken wants tokens that were signed by the signer of AWS's own SDK; server/tools/sigv4 compares more.
func TestToken(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC)
	for want, c := range map[string]struct {
		cache string
		keys  store.Keys
	}{
		"cache-1/?Action=connect&User=weir&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAEXAMPLE%2F20261123%2Feu-west-1%2Felasticache%2Faws4_request&X-Amz-Date=20261123T010203Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Signature=4b52e08937b40d45a504c7fac55d868ea77b944f4789dc799b382dc29669f6fc":                                                                 {"elasticache:Cache-1", store.Keys{ID: "AKIAEXAMPLE", Secret: "wJalr/EXAMPLE+KEY"}},
		"cache/?Action=connect&ResourceType=ServerlessCache&User=weir&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=ASIAEXAMPLE%2F20261123%2Feu-west-1%2Felasticache%2Faws4_request&X-Amz-Date=20261123T010203Z&X-Amz-Expires=900&X-Amz-Security-Token=a%2Bb%2Fc%3D%3D&X-Amz-SignedHeaders=host&X-Amz-Signature=2b4a7786823fbde1bc75ff71b178989829fd47dcc2ff39254ff31ef8d28e9efa": {"elasticache-serverless:cache", store.Keys{ID: "ASIAEXAMPLE", Secret: "secret", Session: "a+b/c=="}},
		"cluster/?Action=connect&User=weir&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAEXAMPLE%2F20261123%2Feu-west-1%2Fmemorydb%2Faws4_request&X-Amz-Date=20261123T010203Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Signature=4e43d5ef5384f1cc193b12599dd063306cf96afc742f49abae5f20d6aa4fc55e":                                                                    {"memorydb:cluster", store.Keys{ID: "AKIAEXAMPLE", Secret: "wJalr/EXAMPLE+KEY"}},
	} {
		i, err := store.ParseIAM(c.cache)
		if err != nil {
			t.Fatal(err)
		}
		i.User, i.Region = "weir", "eu-west-1"
		if got := i.Token(c.keys, at); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestContainerCredentials: containers get temporary credentials over HTTP.
func TestContainerCredentials(t *testing.T) {
	reply := `{"AccessKeyId":"ASIAEXAMPLE","SecretAccessKey":"secret","Token":"session"}`
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "pod" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(reply))
	}))
	t.Cleanup(service.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("pod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for variable, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_REGION": "eu-west-1", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": service.URL, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token,
	} {
		t.Setenv(variable, value)
	}
	s, err := store.Open(store.Options{URL: "rediss://weir@127.0.0.1:1", Passwords: store.Passwords{IAM: "elasticache-serverless:Cache"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	password, err := s.ReadPassword(t.Context())
	for _, part := range []string{"cache/?Action=connect&ResourceType=ServerlessCache&User=weir&", "ASIAEXAMPLE%2F", "&X-Amz-Security-Token=session&", "%2Feu-west-1%2Felasticache%2Faws4_request"} {
		if err != nil || !strings.Contains(password, part) {
			t.Errorf("%s is not in %s %v", part, password, err)
		}
	}
	if err := os.WriteFile(token, []byte("other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadPassword(t.Context()); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a right to credentials: %v", err)
	}
}
