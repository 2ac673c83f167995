package singleflight_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A User is what the examples cache.
type User struct {
	ID   string
	Name string
}

// database stands for a database that is expensive to query.
type database map[string]User

func (db database) User(_ context.Context, id string) (User, error) {
	fmt.Println("asking the database for", id)
	u, ok := db[id]
	if !ok {
		return User{}, singleflight.ErrNotFound
	}
	return u, nil
}

func (db database) Users(_ context.Context, ids []string) (map[string]User, error) {
	fmt.Println("asking the database for", ids)
	found := map[string]User{}
	for _, id := range ids {
		if u, ok := db[id]; ok {
			found[id] = u
		}
	}
	return found, nil
}

var db = database{"7": {"7", "Ada"}, "8": {"8", "Grace"}, "9": {"9", "Barbara"}}

func ExampleGroup_Do() {
	rdb, stop := redistest.Connect()
	defer stop()
	ctx := context.Background()

	users, err := singleflight.New(rdb, singleflight.Config[User]{
		Name:     "users",
		TTL:      time.Minute,
		StaleFor: 10 * time.Minute, // served while one process rebuilds the value
	})
	if err != nil {
		log.Fatal(err)
	}
	defer users.Close(ctx)

	for range 3 {
		user, err := users.Do(ctx, "7", func(ctx context.Context) (User, error) {
			return db.User(ctx, "7") // runs once in the whole fleet
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user.Name)
	}
	// Output:
	// asking the database for 7
	// Ada
	// Ada
	// Ada
}

func ExampleGroup_Fetch() {
	rdb, stop := redistest.Connect()
	defer stop()
	ctx := context.Background()
	users, err := singleflight.New(rdb, singleflight.Config[User]{Name: "users", TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer users.Close(ctx)

	for range 2 {
		r, err := users.Fetch(ctx, "7", func(ctx context.Context) (User, error) { return db.User(ctx, "7") })
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, %s, %.0f minutes old\n", r.Value.Name, r.Source, r.Age.Minutes())
	}
	// Output:
	// asking the database for 7
	// Ada, loaded, 0 minutes old
	// Ada, cached, 0 minutes old
}

func ExampleGroup_DoMany() {
	rdb, stop := redistest.Connect()
	defer stop()
	ctx := context.Background()
	users, err := singleflight.New(rdb, singleflight.Config[User]{Name: "users", TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer users.Close(ctx)

	for _, ids := range [][]string{{"7", "8"}, {"9", "8", "7", "404"}} {
		found, err := users.DoMany(ctx, ids, db.Users) // loads the missing keys
		for _, id := range slices.Sorted(maps.Keys(found)) {
			fmt.Println(found[id].Name)
		}
		if err != nil {
			fmt.Println(err) // the errors of the keys that are not in found
		}
	}
	// Output:
	// asking the database for [7 8]
	// Ada
	// Grace
	// asking the database for [9 404]
	// Ada
	// Grace
	// Barbara
	// leasehold: singleflight: do many users/404: not found
}

func ExampleGroup_Invalidate() {
	rdb, stop := redistest.Connect()
	defer stop()
	ctx := context.Background()
	users, err := singleflight.New(rdb, singleflight.Config[User]{Name: "users", TTL: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	defer users.Close(ctx)
	names := database{"7": {"7", "Ada"}}
	load := func(ctx context.Context) (User, error) { return names.User(ctx, "7") }

	before, err := users.Do(ctx, "7", load)
	if err != nil {
		log.Fatal(err)
	}
	names["7"] = User{"7", "Ada Lovelace"} // first change the data, then invalidate
	if err := users.Invalidate(ctx, "7"); err != nil {
		log.Fatal(err) // the value may have been dropped or not: call Invalidate again
	}
	after, err := users.Do(ctx, "7", load)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(before.Name, "is", after.Name)
	// Output:
	// asking the database for 7
	// asking the database for 7
	// Ada is Ada Lovelace
}

func ExampleErrNotFound() {
	rdb, stop := redistest.Connect()
	defer stop()
	ctx := context.Background()
	users, err := singleflight.New(rdb, singleflight.Config[User]{
		Name:        "users",
		TTL:         time.Minute,
		NotFoundTTL: 10 * time.Second, // remember also that there is no such user
	})
	if err != nil {
		log.Fatal(err)
	}
	defer users.Close(ctx)

	for range 2 {
		_, err := users.Do(ctx, "404", func(ctx context.Context) (User, error) {
			return db.User(ctx, "404") // returns ErrNotFound
		})
		if errors.Is(err, singleflight.ErrNotFound) {
			fmt.Println("no such user")
		}
	}
	// Output:
	// asking the database for 404
	// no such user
	// no such user
}
