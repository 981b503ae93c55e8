package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	// maxLine is how long a line may be.
	maxLine = 1 << 20
	// yearAhead is how far a line may be ahead of all before it, in µs, unless the next
	// line is too: one wrong clock must not make all lines behind it late.
	yearAhead = 366 * 24 * 3600 * 1_000_000
	// samples is how many broken lines are shown.
	samples = 5
	// undetected is how many lines may be of no known format before a log is
	// given up.
	undetected = 100
)

// Stats is what was read so far.
type Stats struct {
	Bytes   int64 // of the lines, decompressed
	Lines   int64 // the records, and Broken; headers and empty lines do not count
	Broken  int64
	Late    int64 // records that came too late to be put in order: they were taken to be of the latest instant
	Samples []Broken
}

// Broken is a line that could not be read.
type Broken struct {
	File string
	Line int64
	Why  string
	Text string // its beginning, quoted
}

// A source is one log.
type source struct {
	name    string
	close   func() error
	reader  *bufio.Reader
	format  Format
	field   string
	parser  parser
	line    int64
	records int64
	latest  int64
	leap    leap     // the last line, if it is more than a year ahead of those before it
	after   *Record  // the record behind that of a leap that was confirmed
	head    *Record  // the next record, if it was read
	fields  []string // of the first record
	ended   bool
	read    int64 // bytes of the file, compressed if it is
	size    int64 // of the file; 0 if it is unknown
}

// A leap is a line that is far ahead of those before it: a wrong clock, or the end of a long pause.
type leap struct {
	line   int64 // its number; 0: none
	text   string
	record Record
}

func open(path string, stdin io.Reader, o Options) (*source, error) {
	s := &source{name: path, close: func() error { return nil }, format: o.Format, field: o.TimeField}
	raw := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		if info, err := file.Stat(); err == nil && info.IsDir() {
			_ = file.Close()
			return nil, fmt.Errorf("%s is a folder: want log files", path)
		}
		s.close, raw = file.Close, file
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			s.size = info.Size()
		}
	}
	s.reader = bufio.NewReaderSize(counter{raw, &s.read}, 1<<18)
	if magic, _ := s.reader.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(s.reader)
		if err != nil {
			_ = s.close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		s.reader = bufio.NewReaderSize(unzipped, 1<<18)
	}
	if s.format != Auto {
		s.parser = newParser(s.format, s.field)
	}
	return s, nil
}

// A counter counts the bytes that are read.
type counter struct {
	from io.Reader
	n    *int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	*c.n += int64(n)
	return n, err
}

// nextLine returns the next line without its end, and its length if it is longer than
// lines may be.
func (s *source) nextLine() (line string, size int, err error) {
	piece, err := s.reader.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return strings.TrimRight(string(piece), "\r\n"), len(piece), err
	}
	whole := bytes.Clone(piece)
	size = len(piece)
	for errors.Is(err, bufio.ErrBufferFull) {
		piece, err = s.reader.ReadSlice('\n')
		size += len(piece)
		if size <= maxLine {
			whole = append(whole, piece...)
		}
	}
	return strings.TrimRight(string(whole), "\r\n"), size, err
}

// next fills in the record with the next line that is one. At the end it returns
// io.EOF.
func (s *source) next(r *Record, stats *Stats) error {
	if s.after != nil {
		*r, s.after = *s.after, nil
		s.took(r, stats)
		return nil
	}
	for !s.ended {
		line, size, err := s.nextLine()
		s.ended = err != nil
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: after line %d: %w", s.name, s.line, err)
		}
		s.line++
		stats.Bytes += int64(size)
		if strings.TrimSpace(line) == "" {
			continue
		}
		why := s.parse(line, size, r)
		leaps := why == nil && s.records > 0 && r.Micros > s.latest+yearAhead
		switch {
		case leaps && s.leap.line > 0 && abs(r.Micros-s.leap.record.Micros) <= yearAhead:
			after := r.clone()
			*r, s.after, s.leap = s.leap.record, &after, leap{}
			s.took(r, stats)
			return nil
		case leaps:
			s.drop(stats)
			s.leap = leap{s.line, line, r.clone()}
			continue
		case why == nil:
			s.drop(stats)
			s.took(r, stats)
			return nil
		}
		s.drop(stats)
		stats.broke(s.name, s.line, line, why)
		if s.parser == nil && s.line >= undetected {
			return fmt.Errorf("%s is of no known format: %d lines are none of %s", s.name, s.line, FormatNames())
		}
	}
	s.drop(stats)
	return io.EOF
}

// took counts a record that is given out.
func (s *source) took(r *Record, stats *Stats) {
	stats.Lines++
	if s.records++; s.records == 1 {
		s.fields = r.names()
	}
	s.latest = max(s.latest, r.Micros)
}

// drop counts a leap that the line behind it does not confirm.
func (s *source) drop(stats *Stats) {
	if s.leap.line > 0 {
		stats.broke(s.name, s.leap.line, s.leap.text, errAhead)
		s.leap = leap{}
	}
}

var errAhead = errors.New("its time is more than a year ahead of the lines around it")

func abs(n int64) int64 { return max(n, -n) }

func (s *source) parse(line string, size int, r *Record) error {
	if size > maxLine {
		return fmt.Errorf("%d bytes long, at most %d", size, maxLine)
	}
	if s.parser == nil {
		if s.format = detect(line); s.format == Auto {
			return errors.New("of no known format")
		}
		s.parser = newParser(s.format, s.field)
	}
	r.Micros, r.fields = 0, r.fields[:0]
	return s.parser.parse(line, r)
}

func (t *Stats) broke(file string, number int64, line string, why error) {
	t.Lines++
	t.Broken++
	if len(t.Samples) < samples {
		t.Samples = append(t.Samples, Broken{File: file, Line: number, Why: why.Error(), Text: shortened(line)})
	}
}
