package frames

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/net/http2/hpack"
)

// A code is that of a symbol in Huffman's code.
type code struct {
	bits   uint32 // the code begins with the highest one
	length int
	symbol byte
}

// codes are all of them in the order of their bits, made of what package hpack writes.
var codes = func() (all []code) {
	for symbol := range 256 {
		eight := string(slices.Repeat([]byte{byte(symbol)}, 8))
		length := int(hpack.HuffmanEncodeLength(eight)) // of one, in bits
		bits := binary.BigEndian.Uint32(hpack.AppendHuffmanString(nil, eight))
		all = append(all, code{bits >> (32 - length) << (32 - length), length, byte(symbol)})
	}
	slices.SortFunc(all, func(a, b code) int { return cmp.Compare(a.bits, b.bits) })
	return all
}()

// codeOf returns the code that the bits begin with. If none does, its length is more than any
// string has left.
func codeOf(bits uint32) code {
	i, found := slices.BinarySearchFunc(codes, bits, func(c code, bits uint32) int { return cmp.Compare(c.bits, bits) })
	if !found {
		i--
	}
	if c := codes[i]; (bits^c.bits)>>(32-c.length) == 0 {
		return c
	}
	return code{length: 64}
}

const (
	longest  = 30 // of all codes, in bits
	pairBits = 12
)

// A pair is the symbols whose codes some bits begin with: two, if both fit, one, or none.
type pair struct{ first, second, firstLength, length uint8 }

// pairs have all that a string can go on with. Most codes of text have five or six bits, so
// that one look-up finds two symbols.
var pairs = func() (all [1 << pairBits]pair) {
	for i := range all {
		bits := uint32(i) << (32 - pairBits)
		first := codeOf(bits)
		second := codeOf(bits << first.length)
		switch {
		case first.length+second.length <= pairBits:
			all[i] = pair{first.symbol, second.symbol, uint8(first.length), uint8(first.length + second.length)}
		case first.length <= pairBits:
			all[i] = pair{first: first.symbol, firstLength: uint8(first.length)}
		}
	}
	return all
}()

var errHuffman = errors.New("frames: a string that is not in Huffman's code")

// unhuffman returns a string that is in Huffman's code. Up to seven bits that are 1 may follow.
func unhuffman(b []byte) (string, error) {
	var memory [128]byte
	text := memory[:0]
	bits, n := uint64(0), 0 // what comes next, the highest bit first, and how many bits there are
	for {
		switch {
		case n > longest:
		case len(b) >= 4:
			bits |= uint64(binary.BigEndian.Uint32(b)) << (32 - n)
			n, b = n+32, b[4:]
		default:
			for _, next := range b {
				bits |= uint64(next) << (56 - n)
				n += 8
			}
			b = nil
		}
		p := &pairs[bits>>(64-pairBits)]
		if p.length > 0 && int(p.length) <= n {
			text = append(text, p.first, p.second)
			bits <<= p.length
			n -= int(p.length)
			continue
		}
		c := code{length: int(p.firstLength), symbol: p.first}
		if c.length == 0 {
			c = codeOf(uint32(bits >> 32))
		}
		if c.length > n {
			break
		}
		text = append(text, c.symbol)
		bits <<= c.length
		n -= c.length
	}
	if n > 7 || bits != ^uint64(0)<<(64-n) {
		return "", errHuffman
	}
	return string(text), nil
}
