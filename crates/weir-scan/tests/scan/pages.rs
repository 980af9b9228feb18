//! Pages and pictures that a browser reads otherwise than somebody who looks for tags: what acts in them is found all the same.

use crate::corpus::carriers::{program, zipped};
use crate::hidden::{Case, End, all_end, plain, referenced};

/// What stands before something in a page that is so long that only what acts in it is looked through.
fn long() -> String {
    format!("<!--{}-->", " ".repeat(9 << 20))
}

fn svg(inside: &str) -> Vec<u8> {
    format!("<svg xmlns=\"http://www.w3.org/2000/svg\">{inside}</svg>").into_bytes()
}

/// The quote that ends it stands behind what acts.
#[test]
fn quotes_that_are_none_to_a_browser_hide_nothing() {
    let zip = plain(&zipped("evil.exe", &program()));
    let link = format!("<a href='data:application/zip;base64,{zip}' download=x.zip>");
    let (long, runs) = (long(), "onerror=eval(unescape(name))");
    let mut cases: Vec<Case> = Vec::new();
    for before in [
        "<!-- <p a=\" -->",
        "<title><p a=\"</title>",
        "<script>i<n;s=\"</script>",
        "<?x a=\">",
        "<!x \">",
        "<p =\">",
        "<p a==\">",
        "<p a=b=\">",
        "<_ a=\"",
    ] {
        cases.push(("a.html", format!("<html>{before}{link}<p title=\"a\">").into(), "evil.exe"));
        let page = format!("<html>{long}{before} a=' <img src=x {runs}> ' <p title=\"a\">");
        cases.push(("b.html", page.into(), "hides what it does"));
    }
    cases.extend([
        ("c.html", format!("<html>{long}<img =\" title=\"a>b\" {runs}>").into(), "hides what it does"),
        ("a.svg", svg("<!-- <p a=\" --><image onerror='x()'/><!-- \" -->"), "a picture with a script"),
    ]);
    all_end(&End::Held, cases);
    let usual = "<script>for(i=0;i<n;i++)a[i]=\"b\";if(i<n/2)f(\"<p class='a'>x</p>\");</script>".repeat(2000);
    all_end(&End::Passed, vec![("a.html", format!("<html><!-- <p>a</p> -->{usual}</html>").into(), "")]);
}

#[test]
fn a_script_goes_on_behind_the_end_of_another_one_in_its_comment() {
    let script = "<script><!-- <script> </script>\neval(unescape(name))\n--></script>";
    all_end(
        &End::Held,
        vec![
            ("a.html", format!("<html>{script}").into(), "hides what it does"),
            ("b.html", format!("<html>{}{script}", long()).into(), "hides what it does"),
            (
                "c.html",
                format!("<html>{}<script>x='</scripts>';eval(unescape(x))</script>", long()).into(),
                "hides what it does",
            ),
        ],
    );
}

#[test]
fn white_space_in_an_address_is_passed_over_however_long_it_is() {
    let tabs = "\t".repeat(5000);
    let link = format!("<a href='search{tabs}-ms:query=x&crumb=y'>");
    all_end(
        &End::Held,
        vec![
            ("a.html", format!("<html>{link}").into(), "opens a folder"),
            ("b.html", format!("<html>{}{link}", long()).into(), "opens a folder"),
            ("a.svg", svg(&format!("<a href='java{tabs}script:x()'/>")), "a picture with a script"),
        ],
    );
}

#[test]
fn a_long_page_is_looked_through_whatever_it_begins_with() {
    let zip = plain(&zipped("evil.exe", &program()));
    let (long, veiled) = (long(), referenced("eval(atob(x))"));
    all_end(
        &End::Held,
        vec![
            ("a.html", format!("#!/x\n<html>{long}<script>eval(unescape(x))</script>").into(), "hides what it does"),
            ("b.html", format!("#!/x\n<html>{long}<script>var u=atob('{zip}')</script>").into(), "evil.exe"),
            ("c.html", format!("#!/x\n<html><body onload=\"{veiled}\">").into(), "hides what it does"),
            (
                "d.html",
                format!("<html>{long}{long}<scr\x1b(Bipt>eval(unescape(name))</script>").into(),
                "more script than is looked through",
            ),
        ],
    );
}
