# A formula for Homebrew (macOS, Linux). No release is published yet, so it builds the copy of the repository that it stands in:
#
#   brew install --build-from-source --HEAD packaging/homebrew/kin.rb
#
# Not run on a Mac or with Homebrew so far; only its syntax is checked.
class Kin < Formula
  desc "Runs one large language model over the computers of a home"
  homepage "https://HOST/PATH-TO-THIS-REPOSITORY"
  license "MIT"
  head "file://#{File.expand_path("../..", __dir__)}", using: :git, branch: "main"

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "ggml"
  depends_on "highs"
  depends_on "jansson"
  depends_on "libuv"
  depends_on "llhttp"
  depends_on "openssl@3"
  depends_on "pcre2"
  depends_on "wslay"

  uses_from_macos "curl"

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DKIN_TESTS=OFF", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  service do
    run [opt_bin/"kin", "serve"]
    keep_alive true
    log_path var/"log/kin.log"
    error_log_path var/"log/kin.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/kin --version") unless head?
    assert_match(/\S/, shell_output("#{bin}/kin run --temp 0 -n 8 -p 'Once upon a time'"))
  end
end
