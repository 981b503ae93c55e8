package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	"testing"
	"time"
)

// callRules have a limit that nobody reaches.
const callRules = `domain: bench
descriptors:
  - key: user
    rate_limit: {algorithm: gcra, requests_per_unit: 1000000000, unit: hour}
`

// BenchmarkCalls counts the functions of Weir that one POST /v1/take on Redis calls: it builds
// weir serve with a counter at the beginning of every function and asks it, one request at a
// time. What an idle server calls is subtracted. Functions that the compiler can inline are
// calls in the source alone. With -v it lists the functions.
func BenchmarkCalls(b *testing.B) {
	folder := b.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		b.Fatal(err)
	}
	program, functions, err := instrument(b.Context(), root, folder)
	if err != nil {
		b.Fatal(err)
	}
	small, err := inlinable(b.Context(), root)
	if err != nil {
		b.Fatal(err)
	}
	rules, counts := filepath.Join(folder, "rules.yaml"), filepath.Join(folder, "counts.json")
	if err := os.WriteFile(rules, []byte(callRules), 0o644); err != nil {
		b.Fatal(err)
	}
	server := serve(b, program, []string{countsVariable + "=" + counts}, "--config", rules, "--store", startServer(b).URL(),
		"--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "off", "--log-level", "warn")
	url := "http://" + server.http + "/v1/take"
	const requests = 500
	take(b, url, requests) // warms up
	server.read(b, counts)
	begun := time.Now()
	take(b, url, requests)
	took := time.Since(begun)
	busy := server.read(b, counts)
	time.Sleep(took)
	idle := server.read(b, counts)
	for i := range functions {
		f := &functions[i]
		f.calls, f.small = float64(busy[i]-min(busy[i], idle[i]))/requests, small[fmt.Sprint(f.file, ":", f.line)]
	}
	var list strings.Builder
	sum := printCalls(&list, functions, testing.Verbose())
	b.Log("\n" + list.String())
	b.ReportMetric(sum.calls, "calls")
	b.ReportMetric(sum.large, "not-inlinable")
	b.ReportMetric(float64(len(sum.files)), "files")
	b.ReportMetric(0, "ns/op")
}

// A function is one of Weir's, or a closure in it.
type function struct {
	file, name string
	line       int
	calls      float64 // a request
	small      bool    // the compiler can inline it
}

// printCalls lists the folders, and all functions if asked to, and returns the sum.
func printCalls(w io.Writer, functions []function, all bool) tally {
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
	return sum
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
	"bufio"
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
func take(b *testing.B, url string, n int) {
	const body = `{"domain":"bench","descriptors":[{"entries":[{"key":"user","value":"u1"}]}]}`
	for range n {
		response, err := http.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err = errors.Join(err, response.Body.Close()); err != nil {
			b.Fatal(err)
		}
		if response.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"allowed":true`)) {
			b.Fatalf("/v1/take answers %s: %s", response.Status, text)
		}
	}
}

// A process is weir serve.
type process struct {
	*exec.Cmd
	http string // its address
}

// serve starts a server and waits for its address.
func serve(b *testing.B, program string, env []string, args ...string) *process {
	p := &process{Cmd: exec.Command(program, append([]string{"serve"}, args...)...)}
	p.Env, p.Stderr = append(os.Environ(), env...), os.Stderr
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	for lines := bufio.NewScanner(out); p.http == "" && lines.Scan(); {
		p.http, _ = strings.CutPrefix(lines.Text(), "http ")
	}
	if p.http == "" {
		b.Fatal("weir serve has no HTTP listener")
	}
	return p
}

// read returns the counts since the last time.
func (p *process) read(b *testing.B, file string) []uint64 {
	_ = os.Remove(file)
	if err := p.Process.Signal(syscall.SIGUSR1); err != nil {
		b.Fatal(err)
	}
	for range 100 {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		var all []uint64
		if err = errors.Join(err, json.Unmarshal(text, &all)); err != nil {
			b.Fatal(err)
		}
		return all
	}
	b.Fatal("the server writes no counts")
	return nil
}

// Every function and closure of a file gets a counter of its own.
func TestCount(t *testing.T) {
	t.Parallel()
	found, text, err := count("p/f.go", []byte("package p\n\ntype a int\n\nfunc (x *a) b() { func() {}() }\n\n//go:noinline\nfunc c() {}\n\nfunc d() {}\n"), 7)
	if err != nil {
		t.Fatal(err)
	}
	want := []function{
		{file: "p/f.go", name: "(*a).b", line: 5},
		{file: "p/f.go", name: "(*a).b closure:5", line: 5},
		{file: "p/f.go", name: "d", line: 10},
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	for _, line := range []string{
		`package p; import benchcounter "github.com/weirlimit/weir/internal/benchcounter"`,
		`func (x *a) b() {benchcounter.Count(7); func() {benchcounter.Count(8);}() }`,
		`func d() {benchcounter.Count(9);}`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("the text lacks %s:\n%s", line, text)
		}
	}
}
