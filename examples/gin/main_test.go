package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/memstore"
)

// door is the example over a store whose clock stands, and how many tries it has
// looked at.
type door struct {
	engine http.Handler
	looked atomic.Int64
}

func newDoor(t *testing.T) *door {
	t.Helper()
	gin.SetMode(gin.TestMode)
	d := &door{}
	engine, err := newEngine(memstore.New(memstore.Options{Now: storetest.NewClock().Now}), func(name, password string) bool {
		d.looked.Add(1)
		return strings.EqualFold(name, "ann") && password == "correct"
	})
	if err != nil {
		t.Fatal(err)
	}
	d.engine = engine
	return d
}

func (d *door) login(name, password, address string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader("name="+name+"&password="+password))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = address
	w := httptest.NewRecorder()
	d.engine.ServeHTTP(w, r)
	return w
}

func TestKnownAreNotLimited(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	for i := range 20 {
		if w := d.login("ann", "correct", "192.0.2.1:1"); w.Code != 200 || w.Body.String() != "welcome\n" {
			t.Errorf("login %d: %d %q", i, w.Code, w.Body)
		}
	}
}

func TestGuesses(t *testing.T) {
	t.Parallel()
	for what, address := range map[string]func(i int) string{
		"from one address": func(int) string { return "192.0.2.1:1" },
		"from many":        func(i int) string { return "192.0.2." + string(rune('1'+i)) + ":1" },
	} {
		d := newDoor(t)
		for i := range 8 {
			want := 401
			if i >= 5 {
				want = 429
			}
			if w := d.login([]string{"ann", "Ann"}[i%2], "guess", address(i)); w.Code != want {
				t.Errorf("%s, guess %d: %d, want %d", what, i, w.Code, want)
			}
		}
		w := d.login("ann", "correct", address(8))
		if w.Code != 429 || w.Header().Get("Retry-After") != "3600" || w.Header().Get("RateLimit") != "" || !strings.Contains(w.Body.String(), `"detail":"too many requests"`) {
			t.Errorf("%s, afterwards: %d %v %s", what, w.Code, w.Header(), w.Body)
		}
	}
}

// TestOtherNamesAtOneAddress has an address try many names.
func TestOtherNamesAtOneAddress(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	for i := range 5 {
		if w := d.login("name"+string(rune('1'+i)), "guess", "192.0.2.1:1"); w.Code != 401 {
			t.Errorf("guess %d: %d", i, w.Code)
		}
	}
	if w := d.login("ann", "correct", "192.0.2.1:1"); w.Code != 429 {
		t.Errorf("a name not tried yet: %d, want 429", w.Code)
	}
	if w := d.login("ann", "correct", "192.0.2.2:1"); w.Code != 200 {
		t.Errorf("another address: %d, want 200", w.Code)
	}
}

// TestGuessesAtOnce: that they come at the same time gives nobody more of them.
func TestGuessesAtOnce(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { d.login("ann", "guess", "192.0.2.1:1") })
	}
	all.Wait()
	if n := d.looked.Load(); n != 5 {
		t.Errorf("%d guesses were looked at, want 5", n)
	}
}
