package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirlimit/weir/server/bench/measure"
	"github.com/weirlimit/weir/server/bench/remote"
)

// calls counts the functions of Weir that one POST /v1/take on Redis calls: it builds
// weir serve with a counter at the beginning of every function, asks it some hundred
// times, one request at a time, and divides. What an idle server calls is
// subtracted. Functions that the compiler can inline are calls in the source alone.
func calls(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("bench calls", flag.ContinueOnError)
	all := flags.Bool("all", false, "list the functions")
	if err := flags.Parse(args); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	program, functions, err := instrument(ctx, root, folder)
	if err != nil {
		return err
	}
	redis, err := measure.StartRedis()
	if err != nil {
		return err
	}
	defer redis.Stop()
	rules, counts := filepath.Join(folder, "rules.yaml"), filepath.Join(folder, "counts.json")
	if err := os.WriteFile(rules, []byte(serverRules), 0o644); err != nil {
		return err
	}
	server, err := remote.Start([]string{
		"env", countsVariable + "=" + counts, program, "serve", "--config", rules, "--store", "redis://" + redis.Address,
		"--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "off", "--log-level", "warn",
	}, "http")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	url := "http://" + server.Addrs["http"] + "/v1/take"
	const requests = 500
	if err := take(ctx, url, requests); err != nil { // warms up
		return err
	}
	if _, err := read(server, counts); err != nil {
		return err
	}
	begun := time.Now()
	if err := take(ctx, url, requests); err != nil {
		return err
	}
	took := time.Since(begun)
	busy, err := read(server, counts)
	if err != nil {
		return err
	}
	time.Sleep(took)
	idle, err := read(server, counts)
	if err != nil {
		return err
	}
	small, err := inlinable(ctx, root)
	for i := range functions {
		f := &functions[i]
		f.calls, f.small = float64(busy[i]-min(busy[i], idle[i]))/requests, small[fmt.Sprint(f.file, ":", f.line)]
	}
	printCalls(os.Stdout, functions, *all)
	return err
}

// A function is one of Weir's, or a closure in it.
type function struct {
	file, name string
	line       int
	calls      float64 // a request
	small      bool    // the compiler can inline it
}

func printCalls(w io.Writer, functions []function, all bool) {
	const often = 0.5 // calls a request, of what belongs to each
	functions = slices.DeleteFunc(slices.Clone(functions), func(f function) bool { return f.calls < often })
	slices.SortStableFunc(functions, func(a, b function) int { return cmp.Compare(filepath.Dir(a.file), filepath.Dir(b.file)) })
	var order []string
	folders := map[string]*tally{}
	sum := tally{files: map[string]bool{}}
	for _, f := range functions {
		folder := filepath.Dir(f.file)
		if folders[folder] == nil {
			folders[folder] = &tally{files: map[string]bool{}}
			order = append(order, folder)
		}
		folders[folder].add(&f)
		sum.add(&f)
	}
	fmt.Fprintln(w, "  calls  not inlinable")
	for _, folder := range order {
		fmt.Fprintf(w, "%7.1f %7.1f  %s\n", folders[folder].calls, folders[folder].large, folder)
		for _, f := range functions {
			if all && filepath.Dir(f.file) == folder {
				fmt.Fprintf(w, "%17.1f  %s  %s\n", f.calls, f.name, filepath.Base(f.file))
			}
		}
	}
	fmt.Fprintf(w, "%7.1f %7.1f  in %d files\n", sum.calls, sum.large, len(sum.files))
}

// A tally counts calls, and those of functions that the compiler cannot inline.
type tally struct {
	calls, large float64
	files        map[string]bool
}

func (t *tally) add(f *function) {
	t.calls += f.calls
	if !f.small {
		t.large += f.calls
	}
	t.files[f.file] = true
}

var canInline = regexp.MustCompile(`(?m)^(\S+?):(\d+):\d+: can inline `)

// inlinable returns the functions that the compiler can inline, as FILE:LINE.
func inlinable(ctx context.Context, root string) (map[string]bool, error) {
	build := exec.CommandContext(ctx, "go", "build", "-gcflags=github.com/weirlimit/weir/...=-m", "-o", os.DevNull, "github.com/weirlimit/weir/server/cmd/weir")
	build.Dir, build.Env = "..", append(os.Environ(), "GOWORK=")
	text, err := build.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("bench: build weir: %w: %s", err, text)
	}
	all := map[string]bool{}
	for _, m := range canInline.FindAllSubmatch(text, -1) {
		file, err := filepath.Rel(root, filepath.Join(root, "server", string(m[1])))
		if err != nil {
			return nil, err
		}
		all[file+":"+string(m[2])] = true
	}
	return all, nil
}

// countsVariable names the file for the counts in the server's environment.
const countsVariable = "WEIR_BENCH_COUNTS"

// counter is the package that counts.
const counter = `package benchcounter

import (
	"encoding/json"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

var counts [%d]atomic.Uint64

// Count counts a call of the i-th function.
func Count(i int) { counts[i].Add(1) }

func init() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for range asked {
			var all [len(counts)]uint64
			for i := range counts {
				all[i] = counts[i].Swap(0)
			}
			text, _ := json.Marshal(all[:])
			file := os.Getenv("` + countsVariable + `")
			_ = os.WriteFile(file+".new", text, 0o600)
			_ = os.Rename(file+".new", file)
		}
	}()
}
`

// instrument builds weir with a counter in every function.
func instrument(ctx context.Context, root, folder string) (program string, functions []function, err error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	put := func(path string, text []byte) error {
		file := filepath.Join(folder, fmt.Sprintf("%d.go", len(overlay.Replace)))
		overlay.Replace[path] = file
		return os.WriteFile(file, text, 0o600)
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(root, path)
		if entry.IsDir() {
			switch relative {
			case "server/bench", "server/tools", "examples", "deploy", "docs", "tools", ".git":
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, text, err := count(relative, text, len(functions))
		functions = append(functions, found...)
		if err != nil || len(found) == 0 {
			return err
		}
		return put(path, text)
	})
	if err != nil {
		return "", nil, err
	}
	if err := put(filepath.Join(root, "internal/benchcounter/counter.go"), fmt.Appendf(nil, counter, len(functions))); err != nil {
		return "", nil, err
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", nil, err
	}
	list := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		return "", nil, err
	}
	program = filepath.Join(folder, "weir")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", list, "-o", program, "github.com/weirlimit/weir/server/cmd/weir")
	build.Dir, build.Stderr = "..", os.Stderr
	build.Env = append(os.Environ(), "GOWORK=")
	return program, functions, build.Run()
}

// count puts counters into the functions of a file, from a number on.
func count(file string, text []byte, first int) (found []function, counted []byte, err error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	written := 0
	put := func(at int, more string) {
		counted = append(append(counted, text[written:at]...), more...)
		written = at
	}
	put(offset(parsed.Name.End()), `; import benchcounter "github.com/weirlimit/weir/internal/benchcounter"`)
	name := ""
	ast.Inspect(parsed, func(n ast.Node) bool {
		var body *ast.BlockStmt
		switch n := n.(type) {
		case *ast.FuncDecl:
			name, body = n.Name.Name, n.Body
			if n.Recv != nil {
				kind := string(text[offset(n.Recv.List[0].Type.Pos()):offset(n.Recv.List[0].Type.End())])
				name = "(" + kind + ")." + name
			}
			if n.Doc != nil && strings.Contains(directives(n.Doc), "//go:") {
				return false
			}
		case *ast.FuncLit:
			body = n.Body
		}
		if body != nil {
			label := name
			if _, closure := n.(*ast.FuncLit); closure {
				label += fmt.Sprintf(" closure:%d", set.Position(n.Pos()).Line)
			}
			put(offset(body.Lbrace)+1, fmt.Sprintf("benchcounter.Count(%d);", first+len(found)))
			found = append(found, function{file: file, name: label, line: set.Position(n.Pos()).Line})
		}
		return true
	})
	return found, append(counted, text[written:]...), nil
}

// directives returns the text of a comment with its directives.
func directives(c *ast.CommentGroup) string {
	var b strings.Builder
	for _, line := range c.List {
		b.WriteString(line.Text + "\n")
	}
	return b.String()
}

// take asks so many times, one request at a time.
func take(ctx context.Context, url string, n int) error {
	const body = `{"domain":"bench","descriptors":[{"entries":[{"key":"user","value":"u1"}]}]}`
	for range n {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(response.Body)
		if err = errors.Join(err, response.Body.Close()); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"allowed":true`)) {
			return fmt.Errorf("bench: /v1/take answers %s: %s", response.Status, text)
		}
	}
	return nil
}

// read returns the counts since the last time.
func read(p *remote.Process, file string) ([]uint64, error) {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := syscall.Kill(p.PID(), syscall.SIGUSR1); err != nil {
		return nil, err
	}
	for range 100 {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		var all []uint64
		return all, errors.Join(err, json.Unmarshal(text, &all))
	}
	return nil, errors.New("bench: the server writes no counts")
}
