// Package rows is what the two programs share: their arguments, the times of the messages, and the
// rows that the receiver writes (four big-endian int64: sequence number, due, stored, received).
package rows

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Arguments of the form name=value.
type Arguments map[string]string

func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func Parse() (action string, given Arguments) {
	given = Arguments{}
	for _, word := range os.Args[2:] {
		name, value, found := strings.Cut(word, "=")
		if !found {
			Must(fmt.Errorf("not name=value: %s", word))
		}
		given[name] = value
	}
	return os.Args[1], given
}

func (a Arguments) Number(name string) int64 {
	value, err := strconv.ParseInt(a[name], 10, 64)
	if err != nil {
		Must(fmt.Errorf("%s: %w", name, err))
	}
	return value
}

// Plan says which message is due when, and when it is sent.
type Plan struct {
	First, Count, Rate int64 // rate 0: as fast as it goes
	DueFrom, Span      int64 // due times spread over the span, in shuffled order
	Delay              int64 // instead, when DueFrom is 0: from the time of sending on
	Size               int64
	began              time.Time
}

func PlanOf(a Arguments) *Plan {
	return &Plan{First: a.Number("first"), Count: a.Number("count"), Rate: a.Number("rate"),
		DueFrom: a.Number("due_from"), Span: a.Number("span"), Delay: a.Number("delay"),
		Size: a.Number("size"), began: time.Now()}
}

// A prime, so that number*shuffle runs through all remainders of any smaller count.
const shuffle = 2_147_483_647

// Wait holds back message number i to its time and says when it is due.
func (p *Plan) Wait(i int64) (due int64) {
	if p.Rate > 0 {
		at := p.began.Add(time.Duration(i) * time.Second / time.Duration(p.Rate))
		if wait := time.Until(at); wait > time.Millisecond {
			time.Sleep(wait)
		}
	}
	offset := i * shuffle % p.Count * p.Span / p.Count
	if p.DueFrom > 0 {
		return p.DueFrom + offset
	}
	return time.Now().UnixMilli() + p.Delay + offset
}

// Value of a message: its number, its due time, filled up.
func (p *Plan) Value(i, due int64) []byte {
	value := make([]byte, p.Size)
	binary.BigEndian.PutUint64(value, uint64(p.First+i))
	binary.BigEndian.PutUint64(value[8:], uint64(due))
	return value
}

func (p *Plan) Report(accepted int64) {
	Must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"accepted": accepted, "seconds": time.Since(p.began).Seconds()}))
}

// File collects the rows; they are on disk at most 50 ms later.
type File struct {
	lock   sync.Mutex
	buffer *bufio.Writer
}

func Open(path string) *File {
	file, err := os.Create(path)
	Must(err)
	rows := &File{buffer: bufio.NewWriterSize(file, 1<<20)}
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			rows.Flush()
		}
	}()
	return rows
}

func (f *File) Add(value []byte, stored time.Time, received int64) {
	var row [32]byte
	copy(row[:16], value[:16])
	binary.BigEndian.PutUint64(row[16:], uint64(stored.UnixMilli()))
	binary.BigEndian.PutUint64(row[24:], uint64(received))
	f.lock.Lock()
	defer f.lock.Unlock()
	_, err := f.buffer.Write(row[:])
	Must(err)
}

func (f *File) Flush() {
	f.lock.Lock()
	defer f.lock.Unlock()
	Must(f.buffer.Flush())
}

// UntilTold waits for SIGTERM or SIGINT.
func UntilTold() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	<-told
}
