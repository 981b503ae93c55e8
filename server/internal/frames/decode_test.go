package frames

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

// decodeBoth decodes blocks, in fragments of a size, with a decoder of this package and with
// package hpack, and returns what each has read before its first error, if it had one.
func decodeBoth(blocks [][]byte, size, longest int) (ours, theirs []string, ourErr, theirErr error) {
	d := decoder{most: tableSize}
	for _, block := range blocks {
		var rest []byte
		for fragment := range slices.Chunk(block, size) {
			rest = append(rest, fragment...)
			for ourErr = nil; len(rest) > 0 && ourErr == nil; {
				var f *field
				var after []byte
				if f, after, ourErr = d.next(rest, longest); ourErr == nil {
					rest = after
				}
				if f != nil {
					ours = append(ours, f.name+"="+f.value)
				}
			}
			if ourErr != nil && !errors.Is(ourErr, errIncomplete) {
				break
			}
		}
		if d.started = false; ourErr != nil {
			break
		}
	}
	their := hpack.NewDecoder(tableSize, func(f hpack.HeaderField) { theirs = append(theirs, f.Name+"="+f.Value) })
	their.SetMaxStringLength(longest)
	for _, whole := range blocks {
		for fragment := range slices.Chunk(whole, size) {
			if _, theirErr = their.Write(fragment); theirErr != nil {
				return ours, theirs, ourErr, theirErr
			}
		}
		if theirErr = their.Close(); theirErr != nil {
			break
		}
	}
	return ours, theirs, ourErr, theirErr
}

// FuzzHeaders decodes header blocks as package hpack does, whatever they are, also in fragments.
func FuzzHeaders(f *testing.F) {
	var encoded bytes.Buffer
	encoder := hpack.NewEncoder(&encoded)
	for _, fields := range [][]string{
		{":method", "POST", "a", "b", "x-forwarded-for", "10.0.0.1"},
		{":method", "POST", "a", "b", "x-forwarded-for", "10.0.0.1", "large", strings.Repeat("~a", 400)},
		{"grpc-timeout", "20m", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	} {
		encoded.Reset()
		for i := 0; i < len(fields); i += 2 {
			_ = encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		f.Add(bytes.Clone(encoded.Bytes()), []byte("\x82\xbe\xbf"), uint8(0))
	}
	for _, again := range repeatedLiterals {
		f.Add([]byte(again[0]), []byte(again[1]), uint8(100))
	}
	f.Add([]byte("\x20\x3f\xe1\x1f\x40\x01a\x01b\xbe\x3f\xe2\x1f"), []byte("\x82\x20"), uint8(1))
	f.Add([]byte("\x40\x81\xff\x00\x00\x82\xff\xff\x10\x01a\x00"), []byte("\xff\x80\x80\x80\x80\x80\x80\x80\x80\x00"), uint8(3))
	f.Add([]byte("\x00\x01A\x01\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), []byte(nil), uint8(2))
	f.Fuzz(func(t *testing.T, first, second []byte, size uint8) {
		const longest = 1000
		first, second = first[:min(len(first), 2000)], second[:min(len(second), 2000)]
		blocks := [][]byte{first, second, first}
		fuzztest.Within(t, fuzztest.MostBytes, 64*(len(first)+len(second)), func() {
			ours, theirs, ourErr, theirErr := decodeBoth(blocks, int(size)+1, longest)
			if theirErr != nil && slices.ContainsFunc(blocks, resizesTwice) {
				return
			}
			if errors.Is(theirErr, hpack.ErrStringLength) { // ours goes on
				ourErr, ours = theirErr, ours[:min(len(ours), len(theirs))]
			}
			if (ourErr == nil) != (theirErr == nil) || !slices.Equal(ours, theirs) {
				t.Errorf("%q in fragments of %d\n got %q, %v\nwant %q, %v", blocks, int(size)+1, ours, ourErr, theirs, theirErr)
			}
		})
	})
}

// repeatedLiterals are blocks, to be decoded one after the other, whose paths and lengths are
// nearly those of the block before.
var repeatedLiterals = [][2]string{
	{"\x04\x82\x60\x7f", "\x04\x02\x60\x7f"},                                  // the same bytes, without Huffman's code
	{"\x04\x02/a\x0f\x0d\x02/a", "\x0f\x0d\x02/a\x04\x02/a"},                  // the same value of another name
	{"\x04\x02/a\x44\x02/a", "\xbe\x04\x02/b\xbe\x04\x02/a"},                  // into the table
	{"\x0f\x0d\x00\x04\x00", "\x04\x00\x0f\x0d\x00"},                          // empty at first
	{"\x0f\x0d\x0225\x04\x02/a", "\x0f\x0d\x0226\x04\x03/ab\x04\x01/"},        // another one, longer and shorter
	{"\x04\x7f\xb2\x01" + strings.Repeat("/", 305), "\x04\x01/\x0f\x0d\x013"}, // too long to be kept
	{"\x04\x82\xff\xff", "\x04\x02/a"},                                        // not in Huffman's code
	{"\x04\x82\x60\x7f", "\x04\x82\xff\xff"},
	{"\x00\x05:path\x02/a", "\x04\x02/a\x00\x05:path\x02/b\x04\x02/a"}, // the name as a literal, too
}

// TestRepeatedLiterals decodes literals that repeat as package hpack does, and with less memory.
//
//nolint:paralleltest // allocations of other tests would count
func TestRepeatedLiterals(t *testing.T) {
	for _, pair := range repeatedLiterals {
		blocks := [][]byte{[]byte(pair[0]), []byte(pair[0]), []byte(pair[1]), []byte(pair[0])}
		for size := range 300 {
			ours, theirs, ourErr, theirErr := decodeBoth(blocks, size+1, 1000)
			if (ourErr == nil) != (theirErr == nil) || !slices.Equal(ours, theirs) {
				t.Errorf("%q in fragments of %d\n got %q, %v\nwant %q, %v", blocks, size+1, ours, ourErr, theirs, theirErr)
			}
		}
	}
	d := decoder{most: tableSize}
	if got := testing.AllocsPerRun(10, func() {
		for rest := []byte("\x04\x82\x60\x7f\x0f\x0d\x0225"); len(rest) > 0; {
			_, after, err := d.next(rest, 100)
			if err != nil {
				t.Fatal(err)
			}
			rest = after
		}
	}); got > 0 {
		t.Errorf("fields that repeat take %v allocations", got)
	}
}

// TestLongValues leaves values out that are too long, whatever the fragments, and goes on.
func TestLongValues(t *testing.T) {
	t.Parallel()
	const longest = tableSize
	for _, tc := range []struct{ begin, value string }{
		{"\x00\x01a", strings.Repeat("~", longest+1)},
		{"\x40\x01a", strings.Repeat("~", 5*longest)},   // into the table, which holds no such entry
		{"\x7e", strings.Repeat("0", 3*longest)},        // the table's newest name, indexed
		{"\x0f\x2f", strings.Repeat("~", longest+1000)}, // the same, not indexed
	} {
		for _, huffman := range []bool{false, true} {
			long := append([]byte("\x40\x01b\x01c"), tc.begin...)
			if huffman {
				from := len(long)
				long = hpack.AppendHuffmanString(appendNumber(long, 7, hpack.HuffmanEncodeLength(tc.value)), tc.value)
				long[from] |= 0x80
			} else {
				long = append(appendNumber(long, 7, uint64(len(tc.value))), tc.value...)
			}
			blocks := [][]byte{append(long, "\x40\x01d\x01e"...), []byte("\xbe\xbf")}
			for _, size := range []int{1, 2, 7, 1000, 16384, 200_000} {
				ours, theirs, ourErr, theirErr := decodeBoth(blocks, size, 1<<20)
				cut, _, cutErr, _ := decodeBoth(blocks, size, longest)
				if !slices.Equal(ours, theirs) || ourErr != nil && theirErr == nil {
					t.Fatalf("whole: %d fields and %v, want %d and %v", len(ours), ourErr, len(theirs), theirErr)
				}
				ours[1], _, _ = strings.Cut(ours[1], "=")
				ours[1] += "="
				if !slices.Equal(cut, ours) || (cutErr == nil) != (ourErr == nil) {
					t.Errorf("%q, fragments of %d: %q and %v, want %q and %v", tc.begin, size, cut, cutErr, ours, ourErr)
				}
			}
		}
	}
}

// appendNumber appends an integer of RFC 7541, whose first byte has some of its bits.
func appendNumber(to []byte, bits uint, n uint64) []byte {
	most := uint64(1)<<bits - 1
	if n < most {
		return append(to, byte(n))
	}
	to = append(to, byte(most))
	for n -= most; n >= 0x80; n >>= 7 {
		to = append(to, byte(n)|0x80)
	}
	return append(to, byte(n))
}

// resizesTwice reports whether a block begins with two sizes of the table, as RFC 7541, 4.2 has it
// for a table that has shrunk and grown since the last block. Package hpack refuses the second
// one unless the table is empty.
func resizesTwice(block []byte) bool {
	for range 2 {
		if len(block) == 0 || block[0]&0xe0 != 0x20 {
			return false
		}
		var err error
		if _, block, err = number(block, 5); err != nil {
			return false
		}
	}
	return true
}

// TestResize shrinks the table and lets it grow again between two blocks.
func TestResize(t *testing.T) {
	t.Parallel()
	d := decoder{most: tableSize}
	for _, b := range []string{"\x40\x01a\x01b", "\x3f\x21\x3f\xe1\x1f\xbe"} { // to 64, to 4096
		for rest := []byte(b); len(rest) > 0; {
			f, after, err := d.next(rest, 100)
			if err != nil || f != nil && f.name+f.value != "ab" {
				t.Fatalf("%+v, %v", f, err)
			}
			rest = after
		}
		d.started = false
	}
	if _, _, err := d.next([]byte{0xbe}, 100); err != nil {
		t.Error(err)
	}
	if _, _, err := d.next([]byte("\x3f\xe1\x1f"), 100); err == nil {
		t.Error("a size was taken in the middle of a block")
	}
}

// TestHuffman decodes each byte, alone and among others, and refuses wrong padding.
func TestHuffman(t *testing.T) {
	t.Parallel()
	for symbol := range 256 {
		for _, text := range []string{string([]byte{byte(symbol)}), "a" + string([]byte{byte(symbol), byte(symbol)}) + "\xff"} {
			if got, err := unhuffman(hpack.AppendHuffmanString(nil, text)); got != text || err != nil {
				t.Errorf("%q: got %q, %v", text, got, err)
			}
		}
	}
	for _, wrong := range []string{"\xff", "\x1c", "\xff\xff\xff\xff"} {
		if got, err := unhuffman([]byte(wrong)); err == nil {
			t.Errorf("%q: got %q", wrong, got)
		}
	}
	if got, err := unhuffman(nil); got != "" || err != nil {
		t.Errorf("nothing: got %q, %v", got, err)
	}
}
