package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// patience is how long a script waits for what must happen before it fails.
const patience = 20 * time.Second

// A session is the server that a script started, and the call it has begun.
type session struct {
	cmd            *exec.Cmd
	stdout, stderr output
	heard          *output // by the service manager, where there is one
	ended          chan struct{}
	conn           net.Conn
	reader         *bufio.Reader
	rest           string
}

// output is a process's output, readable while it is written.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.text.Write(p)
	select {
	case o.written <- struct{}{}:
	default:
	}
	return n, err
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

type sessionKey struct{}

func setUp(env *testscript.Env) error {
	env.Values[sessionKey{}] = &session{}
	// Under the race detector, each command would sleep for a second before it ends.
	env.Setenv("GORACE", os.Getenv("GORACE"))
	return nil
}

func commands() map[string]func(*testscript.TestScript, bool, []string) {
	cmds := map[string]func(*testscript.TestScript, bool, []string){}
	for name, run := range map[string]func(*session, *testscript.TestScript, []string){
		"serve": (*session).serve, "models": (*session).models, "signal": (*session).signal, "exited": (*session).exited,
		"http": (*session).http, "begin": (*session).begin, "refusing": (*session).refusing,
		"finish": (*session).finish, "resp": (*session).resp, "rls": (*session).rls, "curls": (*session).curls, "logged": (*session).logged,
		"admin": (*session).admin, "grpc": (*session).grpc,
		"manager": (*session).manager, "told": (*session).told,
		"certificate": (*session).certificate,
		"cannot":      exits(ExitUsage), "problems": exits(ExitProblems),
	} {
		cmds[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg {
				ts.Fatalf("%s cannot be negated", name)
			}
			run(ts.Value(sessionKey{}).(*session), ts, args)
		}
	}
	return cmds
}

var (
	addressLine = regexp.MustCompile(`(?m)^http (\S+)\n`)
	modelsLine  = regexp.MustCompile(`(?m)^models (\S+)\n`)
)

func (s *session) serve(ts *testscript.TestScript, args []string) {
	s.start(ts, append([]string{"serve"}, args...))
	ts.Setenv("HTTP", s.await(ts, &s.stdout, addressLine)[1])
}

func (s *session) models(ts *testscript.TestScript, args []string) {
	s.start(ts, append([]string{"models", "--listen", "127.0.0.1:0"}, args...))
	ts.Setenv("HTTP", s.await(ts, &s.stdout, modelsLine)[1])
}

// start starts the command, which ends with the script.
func (s *session) start(ts *testscript.TestScript, args []string) {
	binary, err := findBinary(ts)
	ts.Check(err)
	*s = session{heard: s.heard, ended: make(chan struct{}), stdout: output{written: make(chan struct{}, 1)}, stderr: output{written: make(chan struct{}, 1)}}
	s.cmd = exec.Command(binary, args...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = ts.MkAbs("."), &s.stdout, &s.stderr
	s.cmd.Env = []string{"PATH=" + ts.Getenv("PATH")}
	names := []string{"WEIR_HTTP", "WEIR_CONFIG", "WEIR_STORE", "WEIR_HEADERS", "WEIR_RESP", "WEIR_LOG_LEVEL", "WEIR_LOG_FORMAT", "NOTIFY_SOCKET"}
	for _, name := range slices.Concat(names, aliasNames()) {
		s.cmd.Env = append(s.cmd.Env, name+"="+ts.Getenv(name))
	}
	if ts.Getenv("GRPC_PORT") == "" {
		s.cmd.Env = append(s.cmd.Env, "WEIR_GRPC="+cmp.Or(ts.Getenv("WEIR_GRPC"), "127.0.0.1:0"))
	}
	s.cmd.Env = append(s.cmd.Env, "WEIR_ADMIN="+cmp.Or(ts.Getenv("WEIR_ADMIN"), "127.0.0.1:0"))
	ts.Check(s.cmd.Start())
	cmd, ended := s.cmd, s.ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
}

// findBinary finds the command where testscript has put it.
func findBinary(ts *testscript.TestScript) (string, error) {
	for dir := range strings.SplitSeq(ts.Getenv("PATH"), string(os.PathListSeparator)) {
		if path := dir + string(os.PathSeparator) + "weir"; isFile(path) {
			return path, nil
		}
	}
	return "", errors.New("weir is not in $PATH")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// await waits until an output has what find finds, and returns it.
func (s *session) await(ts *testscript.TestScript, o *output, what *regexp.Regexp) []string {
	deadline := time.After(patience)
	for {
		if found := what.FindStringSubmatch(o.String()); found != nil {
			return found
		}
		select {
		case <-o.written:
		case <-s.ended:
			ts.Fatalf("ended without saying %s: %s\n%s", what, s.cmd.ProcessState, &s.stderr)
		case <-deadline:
			ts.Fatalf("does not say %s\n%s", what, &s.stderr)
		}
	}
}

// exits is exec with an exit code that is expected.
func exits(want int) func(*session, *testscript.TestScript, []string) {
	return func(_ *session, ts *testscript.TestScript, args []string) {
		err := ts.Exec(args[0], args[1:]...)
		exit := new(exec.ExitError)
		if !errors.As(err, &exit) || exit.ExitCode() != want {
			ts.Fatalf("got %v, want exit code %d", err, want)
		}
	}
}

func (s *session) logged(ts *testscript.TestScript, args []string) {
	s.await(ts, &s.stderr, regexp.MustCompile(regexp.QuoteMeta(args[0])))
}

func (s *session) signal(ts *testscript.TestScript, args []string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP}
	ts.Check(s.cmd.Process.Signal(signals[args[0]]))
}

func (s *session) exited(ts *testscript.TestScript, args []string) {
	select {
	case <-s.ended:
	case <-time.After(patience):
		ts.Fatalf("still runs\n%s", &s.stderr)
	}
	fmt.Fprint(ts.Stdout(), &s.stdout)
	fmt.Fprint(ts.Stderr(), &s.stderr)
	if got := s.cmd.ProcessState.ExitCode(); strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

func (s *session) http(ts *testscript.TestScript, args []string) {
	status, method, path, body := args[0], args[1], args[2], ""
	headers := args[3:]
	if len(headers) > 0 && strings.HasPrefix(headers[0], "{") {
		body, headers = headers[0], headers[1:]
	}
	req, err := http.NewRequest(method, "http://"+ts.Getenv("HTTP")+path, strings.NewReader(body))
	ts.Check(err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		req.Header.Set(name, value)
	}
	fmt.Fprint(ts.Stdout(), answer(ts, do(ts, req), status))
}

// do makes a call on a connection of its own.
func do(ts *testscript.TestScript, req *http.Request) *http.Response {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	ts.Check(err)
	return resp
}

// answer returns a response as text, once its status was checked.
func answer(ts *testscript.TestScript, resp *http.Response, status string) string {
	defer resp.Body.Close()
	var text bytes.Buffer
	fmt.Fprintln(&text, resp.Status)
	ts.Check(resp.Header.Write(&text))
	_, err := io.Copy(&text, resp.Body)
	ts.Check(err)
	if strconv.Itoa(resp.StatusCode) != status {
		ts.Fatalf("want status %s, got\n%s", status, &text)
	}
	return text.String()
}

// begin asks to be told to continue, which the server does when the handler
// reads the body: from then on the call is in flight for certain.
func (s *session) begin(ts *testscript.TestScript, args []string) {
	conn, err := net.DialTimeout("tcp", ts.Getenv("HTTP"), patience)
	ts.Check(err)
	ts.Defer(func() { _ = conn.Close() })
	ts.Check(conn.SetDeadline(time.Now().Add(patience)))
	body := args[2]
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", args[0], args[1], len(body))
	ts.Check(err)
	s.conn, s.reader = conn, bufio.NewReader(conn)
	line, err := s.reader.ReadString('\n')
	ts.Check(err)
	if !strings.Contains(line, "100 Continue") {
		ts.Fatalf("got %q, want to be told to continue", line)
	}
	_, err = s.reader.ReadString('\n')
	ts.Check(err)
	_, err = io.WriteString(conn, body[:len(body)/2])
	ts.Check(err)
	s.rest = body[len(body)/2:]
}

func (s *session) refusing(ts *testscript.TestScript, _ []string) {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		conn, err := net.DialTimeout("tcp", ts.Getenv("HTTP"), time.Second)
		if err != nil {
			return
		}
		_ = conn.Close()
		time.Sleep(time.Millisecond)
	}
	ts.Fatalf("connections are still accepted")
}

func (s *session) finish(ts *testscript.TestScript, args []string) {
	_, err := io.WriteString(s.conn, s.rest)
	ts.Check(err)
	resp, err := http.ReadResponse(s.reader, nil)
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), answer(ts, resp, args[0]))
}

var (
	lastCurl = regexp.MustCompile(`/v1/take\n`)
	curlURL  = regexp.MustCompile(`(http://[^'\s]+)`)
	curlData = regexp.MustCompile(`-d '([^']*)'`)
	curlLoop = regexp.MustCompile(`^for i in ([0-9 ]+); do `)
)

// curls makes the calls of the printed lines and prints the status of each, as
// curl would be told to.
func (s *session) curls(ts *testscript.TestScript, _ []string) {
	s.await(ts, &s.stdout, lastCurl)
	for line := range strings.Lines(s.stdout.String()) {
		if !strings.Contains(line, "curl -") {
			continue
		}
		times := 1
		if loop := curlLoop.FindStringSubmatch(line); loop != nil {
			times = len(strings.Fields(loop[1]))
		}
		for range times {
			fmt.Fprintln(ts.Stdout(), curl(ts, line))
		}
	}
}

func curl(ts *testscript.TestScript, line string) string {
	url, data := curlURL.FindStringSubmatch(line), curlData.FindStringSubmatch(line)
	if url == nil {
		ts.Fatalf("no URL in %q", line)
	}
	method, body := http.MethodGet, ""
	if data != nil {
		method, body = http.MethodPost, data[1]
	}
	req, err := http.NewRequest(method, url[1], strings.NewReader(body))
	ts.Check(err)
	if strings.Contains(line, "-H 'Content-Type: application/json'") {
		req.Header.Set("Content-Type", "application/json")
	} else if data != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp := do(ts, req)
	return strings.SplitN(answer(ts, resp, strconv.Itoa(resp.StatusCode)), "\n", 2)[0]
}

// certificate writes a certificate for 127.0.0.1 that signs itself, and its key: as
// good for a server as for its clients.
func (s *session) certificate(ts *testscript.TestScript, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: certificate CERT KEY")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ts.Check(err)
	private, err := x509.MarshalECPrivateKey(key)
	ts.Check(err)
	for _, block := range []struct {
		file string
		pem.Block
	}{{args[0], pem.Block{Type: "CERTIFICATE", Bytes: cert}}, {args[1], pem.Block{Type: "EC PRIVATE KEY", Bytes: private}}} {
		ts.Check(os.WriteFile(ts.MkAbs(block.file), pem.EncodeToMemory(&block.Block), 0o600))
	}
}

var respLine = regexp.MustCompile(`(?m)^resp (\S+)$`)

// resp says commands, one an argument, to the server as a Redis client does, and
// prints what is answered.
func (s *session) resp(ts *testscript.TestScript, args []string) {
	conn, err := net.DialTimeout("tcp", s.await(ts, &s.stdout, respLine)[1], patience)
	ts.Check(err)
	defer conn.Close()
	ts.Check(conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, strings.Join(args, "\r\n")+"\r\nQUIT\r\n")
	ts.Check(err)
	answer, err := io.ReadAll(conn)
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), strings.ReplaceAll(string(answer), "\r\n", " "))
}

var grpcLine = regexp.MustCompile(`(?m)^grpc (\S+)$`)

// rls asks the server as Envoy does: a domain, then descriptors, each as
// key=value,key=value. It prints the answer: the code for all, and a line for each
// descriptor with its code, its limit and what remains.
func (s *session) rls(ts *testscript.TestScript, args []string) {
	request := &rlsv3.RateLimitRequest{Domain: args[0]}
	for _, text := range args[1:] {
		descriptor := new(ratelimitv3.RateLimitDescriptor)
		for entry := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(entry, "=")
			descriptor.Entries = append(descriptor.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		request.Descriptors = append(request.Descriptors, descriptor)
	}
	conn, err := grpc.NewClient(s.await(ts, &s.stdout, grpcLine)[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request)
	ts.Check(err)
	fmt.Fprintln(ts.Stdout(), m.GetOverallCode())
	for _, status := range m.GetStatuses() {
		limit := "none"
		if l := status.GetCurrentLimit(); l != nil {
			limit = strconv.FormatUint(uint64(l.GetRequestsPerUnit()), 10) + "/" + l.GetUnit().String() + " " + strconv.Quote(l.GetName())
		}
		fmt.Fprintln(ts.Stdout(), status.GetCode(), limit, status.GetLimitRemaining())
	}
	for _, h := range m.GetResponseHeadersToAdd() {
		fmt.Fprintf(ts.Stdout(), "%s: %s\n", h.GetKey(), h.GetValue())
	}
}

// grpc makes $GRPC the address of the gRPC listener, and $PID the process.
func (s *session) grpc(ts *testscript.TestScript, _ []string) {
	ts.Setenv("GRPC", s.await(ts, &s.stdout, grpcLine)[1])
	ts.Setenv("PID", strconv.Itoa(s.cmd.Process.Pid))
}
