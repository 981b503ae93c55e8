package measure

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a redis-server of the benchmark's own.
type Redis struct {
	Address string
	Version string
	Client  *redis.Client
	dir     string
	process *exec.Cmd
}

// StartRedis starts a server on a free port, without persistence. Stop it.
func StartRedis() (*Redis, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, err
	}
	r := &Redis{Address: fmt.Sprint("127.0.0.1:", port), dir: dir}
	r.process = exec.Command("redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", dir, "--logfile", filepath.Join(dir, "log"))
	if err := r.process.Start(); err != nil {
		return nil, fmt.Errorf("bench: start redis-server: %w", err)
	}
	r.Client = redis.NewClient(&redis.Options{Addr: r.Address})
	for range 100 {
		if info, err := r.Client.Info(context.Background(), "server").Result(); err == nil {
			r.Version = regexp.MustCompile(`redis_version:(\S+)`).FindStringSubmatch(info)[1]
			return r, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.Stop()
	return nil, fmt.Errorf("bench: redis-server on port %d does not answer", port)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// Stop ends the server and removes its folder.
func (r *Redis) Stop() {
	_ = r.Client.Close()
	_ = r.process.Process.Kill()
	_ = r.process.Wait()
	_ = os.RemoveAll(r.dir)
}

// A spending is what a server has done so far.
type spending struct {
	cpu      time.Duration
	commands float64 // all, those inside scripts included
	scripts  float64 // calls of scripts
}

func (r *Redis) spent() (spending, error) {
	info, err := r.Client.InfoMap(context.Background(), "cpu", "commandstats").Result()
	if err != nil {
		return spending{}, err
	}
	var s spending
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, _ := strconv.ParseFloat(info["CPU"][field], 64)
		s.cpu += time.Duration(seconds * 1e9)
	}
	for name, value := range info["Commandstats"] {
		calls, _ := strconv.ParseFloat(strings.TrimPrefix(strings.SplitN(value, ",", 2)[0], "calls="), 64)
		switch strings.TrimPrefix(name, "cmdstat_") {
		case "evalsha", "eval":
			s.scripts += calls
			s.commands += calls
		case "info", "hello", "ping", "client|setinfo", "client|maint_notifications", "flushall", "config|resetstat", "command":
		default:
			s.commands += calls
		}
	}
	return s, nil
}

// Memory is what the keys take, in bytes.
func (r *Redis) Memory() (float64, error) {
	info, err := r.Client.InfoMap(context.Background(), "memory").Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(info["Memory"]["used_memory"], 64)
}

// Clear removes all keys.
func (r *Redis) Clear() error { return r.Client.FlushAll(context.Background()).Err() }
