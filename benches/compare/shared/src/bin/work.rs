//! Prints the shared benchmark work as JSON, for programs in other languages: `work MODEL`.

use compare_shared::Work;

fn main() {
    let work = Work::of_arguments();
    println!("{}", serde_json::to_string(&work).expect("numbers and texts"));
}
