package callers

import "bytes"

// pieceBytes is about how large a piece of a large file is. A file that is read as a whole takes
// thirty times its size.
const pieceBytes = 1 << 20

// A piece is some callers of a large file, below a line "callers:", and how many lines of the file
// come before its own, less that one.
type piece struct {
	text  []byte
	lines int
}

var heading = []byte("callers:\n")

// piecesOf cuts the text of a file into pieces that can be read one by one. It reports whether it
// could: each caller has to begin on a line of its own with "- ", and all of them at the same
// column. A line that is indented no more than that cannot be within a caller.
func piecesOf(text []byte) (pieces []piece, regular bool) {
	indent, began, line := -1, false, 0
	var now piece
	flush := func() {
		if len(now.text) > len(heading) {
			pieces = append(pieces, now)
		}
		now = piece{append(make([]byte, 0, pieceBytes+(4<<10)), heading...), line - 1}
	}
	for each := range bytes.Lines(text) {
		bare := bytes.TrimLeft(each, " ")
		spaces, rest := len(each)-len(bare), bytes.TrimSpace(bare)
		blank := len(rest) == 0 || rest[0] == '#'
		item := bytes.HasPrefix(bare, []byte("- "))
		switch {
		case !began && blank, !began && line == 0 && string(rest) == "---":
		case !began && spaces == 0 && string(rest) == "callers:":
			began = true
		case !began:
			return nil, false
		case blank && indent < 0:
		case indent < 0 && item:
			indent = spaces
			flush()
			now.text = append(now.text, each...)
		case indent < 0:
			return nil, false
		case item && spaces == indent:
			if len(now.text) >= pieceBytes {
				flush()
			}
			now.text = append(now.text, each...)
		case blank || spaces > indent:
			now.text = append(now.text, each...)
		default:
			return nil, false
		}
		line++
	}
	flush()
	return pieces, indent >= 0
}
